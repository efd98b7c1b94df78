// Package redact removes values from error messages. Charts and templates quote values when they fail, and messages end
// up in object status and Events, which more people may read than values.
package redact

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// Placeholder replaces a redacted value.
	Placeholder = "(redacted)"
	// minLength is the length in bytes from which a string is redacted. Shorter strings occur in unrelated words.
	minLength = 6
)

// Strings returns all strings in values, at any depth, together with their quoted forms and the lines of multi-line
// strings.
func Strings(values any) []string {
	switch value := values.(type) {
	case string:
		return variants(value)
	case map[string]any:
		var texts []string
		for _, inner := range value {
			texts = append(texts, Strings(inner)...)
		}
		return texts
	case []any:
		var texts []string
		for _, inner := range value {
			texts = append(texts, Strings(inner)...)
		}
		return texts
	default:
		return nil
	}
}

func variants(text string) []string {
	texts := []string{text}
	if quoted := strings.Trim(strconv.Quote(text), `"`); quoted != text {
		texts = append(texts, quoted)
	}
	if strings.Contains(text, "\n") {
		for line := range strings.Lines(text) {
			texts = append(texts, strings.TrimSpace(line))
		}
	}
	return texts
}

// literal matches a string literal inside a template action, and the function before it if that function takes an error
// message.
var literal = regexp.MustCompile("(?:\\b(fail|required)\\s+)?(\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`)")

// TemplateLiterals returns the string literals in the actions of a template, except the error messages given to fail
// and required.
func TemplateLiterals(template string) []string {
	var texts []string
	for _, after := range strings.Split(template, "{{")[1:] {
		action, _, _ := strings.Cut(after, "}}")
		for _, found := range literal.FindAllStringSubmatch(action, -1) {
			if isMessage := found[1] != ""; !isMessage {
				texts = append(texts, strings.Trim(found[2], "\"`"))
			}
		}
	}
	return texts
}

// Message replaces the secrets in a message with the placeholder. It replaces longer secrets first, because a secret
// may be part of another.
func Message(message string, secrets []string) string {
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(secret string) bool {
		return len(secret) < minLength || strings.Contains(Placeholder, secret)
	})
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range secrets {
		message = strings.ReplaceAll(message, secret, Placeholder)
	}
	return message
}
