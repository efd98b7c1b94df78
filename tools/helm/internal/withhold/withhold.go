// Package withhold keeps what users put in out of messages: charts and templates repeat values when they fail, and
// messages end up in statuses and Events, which more people read than values.
package withhold

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// Mark stands where a value was.
	Mark = "(a value)"
	// shortest is what a text must have to be withheld. Shorter ones are part of too many words.
	shortest = 6
)

// Texts are the texts in values, at any depth, and the lines of those that have several.
func Texts(values any) []string {
	switch value := values.(type) {
	case string:
		return ofText(value)
	case map[string]any:
		var texts []string
		for _, inner := range value {
			texts = append(texts, Texts(inner)...)
		}
		return texts
	case []any:
		var texts []string
		for _, inner := range value {
			texts = append(texts, Texts(inner)...)
		}
		return texts
	default:
		return nil
	}
}

func ofText(text string) []string {
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

// literal finds the texts that a template's author wrote inside its actions, and the function before them that means
// them as a message.
var literal = regexp.MustCompile("(?:\\b(fail|required)\\s+)?(\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`)")

// Literals are the texts inside the actions of a template, less those that are messages.
func Literals(template string) []string {
	var texts []string
	for _, after := range strings.Split(template, "{{")[1:] {
		action, _, _ := strings.Cut(after, "}}")
		for _, found := range literal.FindAllStringSubmatch(action, -1) {
			if message := found[1] != ""; !message {
				texts = append(texts, strings.Trim(found[2], "\"`"))
			}
		}
	}
	return texts
}

// From is the message without these texts. The longest go first: a text may be part of another.
func From(message string, texts []string) string {
	texts = slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		return len(text) < shortest || strings.Contains(Mark, text)
	})
	slices.SortFunc(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, text := range texts {
		message = strings.ReplaceAll(message, text, Mark)
	}
	return message
}
