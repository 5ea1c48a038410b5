// Prints what the quantity type of k8s.io/apimachinery makes of many texts, as JSON.
//
//	go run . > ../../kube/data/quantity.json
package main

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand"
	"strings"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

type text struct {
	In       string `json:"in"`
	OK       bool   `json:"ok"`
	Out      string `json:"out,omitempty"`
	Format   string `json:"format,omitempty"`
	Unscaled string `json:"unscaled,omitempty"`
	Scale    int32  `json:"scale"`
}

type printed struct {
	Unscaled string `json:"unscaled"`
	Scale    int32  `json:"scale"`
	Binary   bool   `json:"binary"`
	Out      string `json:"out"`
}

type vectors struct {
	Source  string    `json:"source"`
	Texts   []text    `json:"texts"`
	JSON    []text    `json:"json"`
	Printed []printed `json:"printed"`
}

func describe(in string, q resource.Quantity, err error) text {
	if err != nil {
		return text{In: in}
	}
	out := q.String()
	dec := q.AsDec()
	return text{In: in, OK: true, Out: out, Format: string(q.Format), Unscaled: dec.UnscaledBig().String(), Scale: int32(dec.Scale())}
}

func handPicked() []string {
	texts := []string{
		"", "0", "-0", "+0", "+", "-", ".", "+.", "-.", "..", "1..", "1.2.3", ".5", "5.", "-.5", "+.5", "1.G", ".G", ".5Gi", "m", "k", "Ki", "E", "e", "e3", "E3", "e-3",
		"1K", "1 Gi", " 1", "1 ", "1_000", "1,000", "NaN", "nan", "Inf", "Infinity", "-Inf", "0x1", "0x1p3", "1e", "1e+", "1e-", "1E", "1E+", "1ee3", "1eE3", "1Ee3", "1E3", "1e3", "1e+3", "1e-3", "1E-3",
		"1i", "1ki", "1KI", "1kI", "1mi", "1ni", "1Gii", "1iG", "1GG", "1Gi1", "1G1", "1k1", "1m-3", "1m3", "1Ki-", "1Ki+", "1-", "1+", "--1", "++1", "+-1", "-+1", "1-1",
		"１", "١", "1\u00a0", "1\n", "\t1", "1m ", "1µ", "1μ", "8 GB", "8GB", "8Gb", "8g", "8gi", "8B", "1h", "1.5h", "1/2", "50%", "1e3.5", "1.5e3", "1.5e", "0.1e-1", "1e1e1",
		"1n", "1u", "1m", "1k", "1M", "1G", "1T", "1P", "1E", "1Ei", "1Pi", "1Ti", "1Gi", "1Mi", "7Ei", "8Ei", "9Ei", "-8Ei", "-9Ei", "7.99999999999999999999Ei",
		"9E", "10E", "18E", "100E", "1000E", "1001E", "1500E", "100000E", "1e18", "1e19", "1e21", "1e22", "1e30", "1e31", "1e32", "1e100",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "92233720368547758070", "18446744073709551616", "999999999999999999", "1000000000000000000", "123456789012345678", "1234567890123456789", "12345678901234567890",
		"9223372036854775807n", "9223372036854775807k", "9223372036854775807Ki", "9007199254740992Ki", "8796093022208Mi", "8388607Ti", "8388608Ti", "123456789012345Ki", "12345678901234Ki",
		"0.1", "0.01", "0.001", "0.0001", "0.000000001", "0.0000000001", "0.00000000001", "-0.0000000001", "0.5n", "1.5n", "-1.5n", "1.1m", "0.1u", "1e-9", "1e-10", "-1e-10", "1e-20", "9e-10", "1.0000000001", "-1.0000000001", "123456789.123456789123", "0.9999999999",
		"0.5Ki", "0.5Mi", "1.5Ki", "1.1Ki", "1.001Ki", "0.001Ki", "0.0001Ki", "-1.5Ki", "1.5Gi", "1.0Gi", "0.000000000000000000000000001Ki", "0.1Ei", "1.Ki", "01Ki", "00.5Gi", "1023", "1024", "1025", "1Ki", "2Ki", "8Ki", "1023Ki", "1024Ki", "1025Ki", "2048Ki", "512Mi", "0Ki", "0.0Ki", "0Gi", "-1Ki", "-1023Ki", "-1024Ki", "+1Ki", "+5", "+5k", "+10Ki", "+8Ki", "+1.5", "005", "0005k", "010", "00", "000", "0.0", "0.", ".0", "-0.0", "0m", "0e3", "0E", "0e400000000",
		"1.250", "1.500", "1.000", "1.2500", "12.50k", "1.250k", "100m", "1000m", "1500m", "10000m", "0.250", "0.25", "2500u", "1000000u", "1000k", "1000Ki", "10000000000n", "1e000", "1e001", "1e0", "1e-0", "1e+0", "1E0", "100e0", "1000e0", "12e6", "12e7", "12e8", "12E6", "1.5e6", "150e4", "0.15e7", "1e02", "1e-02", "1e-6", "1e-7",
		"1e4294967296", "1e4294967299", "1e-4294967296", "1e2147483647", "1e9223372036854775807", "1e9223372036854775808", "1e99999999999999999999", "1e-99999999999999999999", "1e400000000", "5e400000001", "-1e400000000", "1e999", "1e1000", "1e1001", "12e1000", "1e300",
		"100000000000000000000000000000000", "123456789012345678901234567890.123456789", "123456789012345678901234567890.1234567891", "0.123456789012345678901234567890", "1000000000000000000000Ki", "1000000000000000000000m", "1000000000000000000000n", "999999999999999999999999u", "1.000000000000000000", "1.0000000000000000000",
		"Ei", "+Ei", "-Ei", ".Ei", "-.Ei", "5.Ei", "+5.Ei", ".5Ei", "0Ei", "-0Ei", "+0Ei", "+.5Ei", "Pi", ".Pi", "Ti", ".Ti", "e-30", "-e-30", ".e-30", "0e-30", "+.e-30", "-0.0e-30", "0.00e-20", "0.0000000000000000000000", "+.0000000000000000000", "00000000000000000000", "000000000000000000001", ".Gi", "-.5e-30", "-5.e-30",
		"123456789012345678901e3", "123456789012345678901e4", "+123456789012345678901e-3", "-0.00000000000000000001234E", "12345678901234567890.5G", "1.5e4294967296", "1.25e4294967293", "12345678901234567890e4294967296",
	}
	for _, suffix := range []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e2", "E-2", "e5"} {
		for _, number := range []string{"3", "-7", "0.25", "1.5", "16", "1000", "1048576", "-2.50"} {
			texts = append(texts, number+suffix)
		}
	}
	return texts
}

func random(r *rand.Rand, n int) []string {
	suffixes := []string{"", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e1", "e-4", "E7", "e+2", "e12", "E-11", "K", "i", "Mb", "e"}
	digits := func(max int) string {
		var b strings.Builder
		for i, count := 0, r.Intn(max+1); i < count; i++ {
			if r.Intn(3) == 0 {
				b.WriteByte('0')
			} else {
				b.WriteByte(byte('0' + r.Intn(10)))
			}
		}
		return b.String()
	}
	texts := make([]string, 0, n)
	for len(texts) < n {
		width := []int{2, 4, 8, 16, 20, 24}[r.Intn(6)]
		in := []string{"", "", "", "-", "+"}[r.Intn(5)] + digits(width)
		if r.Intn(2) == 0 {
			in += "." + digits(width/2+1)
		}
		texts = append(texts, in+suffixes[r.Intn(len(suffixes))])
	}
	return texts
}

func main() {
	out := vectors{Source: "k8s.io/apimachinery v0.36.3"}
	r := rand.New(rand.NewSource(5517))
	for _, in := range append(handPicked(), random(r, 600)...) {
		q, err := resource.ParseQuantity(in)
		out.Texts = append(out.Texts, describe(in, q, err))
	}
	for _, raw := range []string{
		"2", "-2", "0", "-0", "0.5", "1e3", "1E3", "1e+3", "1e-3", "1.5e3", "100", "1000", "12345678901234567890", "0.1", "1e30", "true", "false", "null", "[]", "{}", "[1]", `{"a":1}`,
		`"1"`, `" 1"`, `"1 "`, `" 1Gi "`, `""`, `" "`, `"\u0031"`, `"1\n"`, `"\t1"`, `"1\u00a0"`, "\"1\u00a0\"", "\"1\u0085\"", "\"\u20091\"", "\"1\u3000\"", "\"1\u200b\"", "\"\ufeff1\"", `"true"`, `"null"`,
	} {
		var holder struct{ Q resource.Quantity }
		err := json.Unmarshal([]byte(`{"Q":`+raw+`}`), &holder)
		out.JSON = append(out.JSON, describe(raw, holder.Q, err))
	}
	for i := 0; i < 300; i++ {
		unscaled := new(big.Int).Rand(r, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(1+r.Intn(19))), nil))
		if r.Intn(3) == 0 {
			unscaled.Mul(unscaled, big.NewInt(1<<(10*r.Intn(3))))
		}
		if r.Intn(4) == 0 {
			unscaled.Neg(unscaled)
		}
		scale := int32(r.Intn(10))
		if r.Intn(2) == 0 {
			scale = 0
		}
		for _, format := range []resource.Format{resource.DecimalSI, resource.BinarySI} {
			q := resource.NewDecimalQuantity(*inf.NewDecBig(unscaled, inf.Scale(scale)), format)
			out.Printed = append(out.Printed, printed{unscaled.String(), scale, format == resource.BinarySI, q.String()})
		}
	}
	fmt.Printf("{\"source\": %q,\n\"texts\": [\n", out.Source)
	line := func(v any, last bool) {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		if last {
			fmt.Printf("%s\n", b)
		} else {
			fmt.Printf("%s,\n", b)
		}
	}
	for i, v := range out.Texts {
		line(v, i == len(out.Texts)-1)
	}
	fmt.Print("],\n\"json\": [\n")
	for i, v := range out.JSON {
		line(v, i == len(out.JSON)-1)
	}
	fmt.Print("],\n\"printed\": [\n")
	for i, v := range out.Printed {
		line(v, i == len(out.Printed)-1)
	}
	fmt.Println("]}")
}
