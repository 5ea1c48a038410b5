// Prints what sigs.k8s.io/yaml, the reader of kubectl and the API server, makes of YAML texts, as JSON.
//
//	go run . > ../../kube/data/yaml.json
package main

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

type vector struct {
	In  string          `json:"in"`
	OK  bool            `json:"ok"`
	Out json.RawMessage `json:"out,omitempty"`
}

func read(in string) vector {
	out, err := yaml.YAMLToJSONStrict([]byte(in))
	if err != nil {
		return vector{In: in}
	}
	return vector{In: in, OK: true, Out: out}
}

func main() {
	scalars := []string{
		"", "~", "null", "Null", "NULL", "nUll", "y", "Y", "n", "N", "yes", "Yes", "YES", "yEs", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF", "true", "True", "TRUE", "tRue", "false", "False", "FALSE",
		"0", "-0", "+0", "1", "+1", "-1", "007", "010", "017", "-017", "+017", "08", "09", "0o17", "0O17", "-0o17", "0x1F", "0X1f", "-0x1F", "0xg", "0b101", "-0b101", "+0b11", "0b2", "1_000", "1__0", "-_1", "_1", "1_", "0x_1f", "1_000.5",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616", "+9223372036854775808", "0xFFFFFFFFFFFFFFFF", "0x10000000000000000", "0777777777777777777777777", "100000000000000000000000000000",
		"0.1", ".5", "5.", "-.5", "+.5", "1.5", "1e3", "1E3", "1e+3", "1e-3", "1.5e3", ".5e3", "1e", "1e400", "-1e400", "1e-400", ".", "..", "+", "-x", "--", "+-1", "1.2.3", "1:30", "190:20:30", "1:30.5", "0.10", "1.0", "00.5", "012.5", "0x1p3", "1e3_0", "._5", ".5_0",
		"2001-01-01", "2001-1-1", "2001-12-14T21:59:43.10-05:00", "2001-12-14t21:59:43Z", "2001-12-14 21:59:43.10", "2001-12-14 21:59:43.10 -5", "2026-11-20T09:00:00Z", "12:30", "10Mi", "500m", "1Gi", "8 GB", "4Ki",
		"=", "<", "a b", "a#b", "a: b", "\"1\"", "'no'", "\"\\u00e9\"", "\"\\x41\"", "'it''s'", "\"a\\nb\"", "é", "\"\"", "''",
		"!!str 5", "!!str no", "!!int \"5\"", "!!int 5", "!!int x", "!!float 5", "!!float 1.5", "!!bool \"yes\"", "!!bool 1", "!!null \"\"", "!!null x", "!!timestamp 2001-01-01", "! 5", "! no", "Infinity", "NaN", "nan", "inf", "-inf",
		"|\n  a\n  b\n", ">\n  a\n  b\n", "|-\n  a\n", "[]", "{}", "[1, no, '2', ~]", "{a: 1, b: [x]}", "[a, b", "{a: 1", "[1,]", "{a: 1,}", "{a, b: }", "*x", "&a 1",
	}
	documents := []string{
		"a: 1\nb: 2\n", "a:\n- 1\n- b: 2\n", "1: a\n", "017: a\n", "no: a\n", "on: a\ny: b\n", "true: a\n", "2001-01-01: a\n", "? a\n: b\n", "? [a]\n: b\n", "? {a: 1}\n: b\n", "~: a\n", "null: a\n", "'1': a\n", "-1: a\n", "0x10: a\n",
		"a: 1\na: 2\n", "{a: 1, a: 2}\n", "1: a\n1: b\n", "yes: a\non: b\n", "x:\n  a: 1\n  a: 2\n",
		"a: &x {b: 1}\nc: *x\n", "a: &x [1, 2]\nc: [*x, *x]\n", "a: &x 5\n*x : b\n", "a: *nope\n", "a: &x\n  b: *x\n", "a: &x 1\nb: &x 2\nc: *x\n",
		"base: &b {x: 1, y: 2}\nobj:\n  <<: *b\n", "base: &b {x: 1, y: 2}\nobj:\n  <<: *b\n  x: 3\n", "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nobj:\n  <<: [*a, *b]\n", "obj:\n  <<: 5\n", "obj:\n  '<<': 5\n", "obj:\n  <<: {q: 1}\n  w: 2\n",
		"a:\tb\n", "a:\n\tb: 1\n", "a: 1\n b: 2\n", "a: [1\nb: 2\n", "a: 'x\n", "a: \"x\\q\"\n", "a: b: c\n", "- a\nb: 1\n", "a: @x\n", "a: `x`\n", "a: %x\n", "%YAML 1.1\n---\na: 1\n", "--- {a: 1}\n", "--- # c\na: 1\n", "# only\n", "a: 1 # c\n", "a: '#'\n", "a: x#y\n", "\ufeffa: 1\n", "a: \u0000\n", "a: \u0007\n", "a: \u00a0b\n", "a: \u0085b\n", "a: x\u2028y\n", "a: 1\r\nb: 2\r\n", "a: |\r\n  x\r\n  y\r\n",
		"text", "- 1\n- 2\n", "a:\n  - b\n  -\n", "a:\nb:\n", "a: !!seq [1]\n", "a: !!map {b: 1}\n", "? a\n? b\n", "a: - b\n", "\"a\": 1\n\"b\":2\n", "{\"a\":1,\"b\":[true,null,1.5e3]}", "{\"a\":\"\\u00e9\\n\\/\"}",
	}
	lines := make([]vector, 0, len(scalars)+len(documents))
	for _, scalar := range scalars {
		lines = append(lines, read("v: "+scalar+"\n"))
	}
	for _, document := range documents {
		lines = append(lines, read(document))
	}
	fmt.Println("{\"source\": \"sigs.k8s.io/yaml v1.6.0\",\n\"texts\": [")
	for i, line := range lines {
		b, err := json.Marshal(line)
		if err != nil {
			panic(err)
		}
		if i < len(lines)-1 {
			b = append(b, ',')
		}
		fmt.Println(string(b))
	}
	fmt.Println("]}")
}
