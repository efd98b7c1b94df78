package redact

import "testing"

func TestMessage(t *testing.T) {
	values := map[string]any{
		"login": map[string]any{"password": "canary-1"},
		"list":  []any{"canary-1-and-more", 7, nil, true},
		"key":   "BEGIN canary\nline canary\n",
		"tab":   "canary\ttab",
		"short": "no",
	}
	for message, want := range map[string]string{
		"execution error at (x.yaml:1:2): bad canary-1":    "execution error at (x.yaml:1:2): bad (redacted)",
		"bad canary-1-and-more, no such user":              "bad (redacted), no such user",
		"parsing \"BEGIN canary\\nline canary\\n\": wrong": "parsing \"(redacted)\": wrong",
		"line canary cannot be read":                       "(redacted) cannot be read",
		"parsing \"canary\\ttab\"":                         "parsing \"(redacted)\"",
		"no value in it":                                   "no value in it",
	} {
		if got := Message(message, Strings(values)); got != want {
			t.Errorf("%q: got %q, want %q", message, got, want)
		}
	}
}

func TestTemplateLiterals(t *testing.T) {
	secrets := TemplateLiterals("a: \"outside\"\nb: {{ printf \"%s\" `canary raw` | add \"canary-2\" }}\n{{ fail \"no zone\" }}c: {{ unclosed \"canary-3\"")
	got := Message("at <canary-2>: canary raw, canary-3, outside, no zone", secrets)
	if want := "at <(redacted)>: (redacted), (redacted), outside, no zone"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
