"""CEL as Kubernetes speaks it: checked compilation and bounded evaluation over raw objects."""
