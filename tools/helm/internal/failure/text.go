package failure

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// What Helm says only in words. Each has a test that makes Helm say it, or quotes its source.
const (
	// action/validate.go, existingResourceConflict.
	textOwnedByOther = "exists and cannot be imported into the current release"
	// action/action.go, errPending.
	textPending = "another operation (install/upgrade/rollback) is in progress"
	// action/install.go, availableName.
	textNameInUse = "cannot reuse a name that is still in use"
	// engine/engine.go, cleanupParseError.
	textParse       = "parse error at ("
	textParseNoLine = "parse error in ("
	// chart/common/util/values.go, ToRenderValuesWithSchemaValidation.
	textSchema = "values don't meet the specifications of the schema(s)"
	// action/upgrade.go, performUpgrade.
	textRemovedAPI = "current release manifest contains removed kubernetes api(s)"
)

func fromText(err error) *Error {
	message := err.Error()
	switch {
	case strings.Contains(message, textOwnedByOther):
		return Wrap(Conflict, err, "%s (take ownership to hand it over to this release, or remove it)", ownedByOther(message))
	case strings.Contains(message, textPending):
		return Wrap(Conflict, err, "another operation on the release is in progress")
	case strings.Contains(message, textNameInUse):
		return Wrap(Conflict, err, "a release of this name exists")
	case strings.Contains(message, textParse), strings.Contains(message, textParseNoLine):
		return Wrap(InvalidPackage, err, "a template of the package cannot be parsed: %s", message)
	case strings.Contains(message, textSchema):
		return Wrap(InvalidValues, err, "%s", withoutValues(oneLine(message)))
	case strings.Contains(message, textRemovedAPI):
		return Wrap(Conflict, err,
			"the last revision holds objects of an API that the cluster no longer serves: %s", message)
	}
	return nil
}

// ownedByOther starts at the object's name: `ConfigMap "a" in namespace "b" exists and cannot be imported…`.
func ownedByOther(message string) string {
	at := strings.Index(message, textOwnedByOther)
	if start := strings.LastIndex(message[:at], ": "); start >= 0 {
		return message[start+2:]
	}
	return message
}

// schemaValue finds the values that the schema's validator repeats: kind/kind.go of santhosh-tekuri/jsonschema.
var schemaValue = regexp.MustCompile(
	`(': )(?:'(?:[^'\\]|\\.)*'|[^' ]+) (does not match pattern|is not valid)|` +
		`((?:[mM]inimum|[mM]aximum|multipleOf): got )[^,]+,`)

func withoutValues(message string) string {
	return schemaValue.ReplaceAllStringFunc(message, func(found string) string {
		parts := schemaValue.FindStringSubmatch(found)
		if parts[3] != "" {
			return parts[3] + "another value,"
		}
		return parts[1] + "the value " + parts[2]
	})
}

// fieldValue finds where the API server repeats a value: k8s.io/apimachinery/pkg/util/validation/field, Error.
var fieldValue = regexp.MustCompile(`(?:Invalid|Unsupported|Duplicate) value: `)

// withoutFieldValues keeps the field and what is wrong with it.
func withoutFieldValues(message string) string {
	var kept strings.Builder
	for {
		found := fieldValue.FindStringIndex(message)
		if found == nil {
			return kept.String() + message
		}
		kept.WriteString(strings.TrimSuffix(message[:found[1]], ": "))
		message = message[found[1]+valueLength(message[found[1]:]):]
	}
}

// valueLength is how much of the text is a value as the API server writes it: quoted, as JSON, or plain up to a colon.
func valueLength(text string) int {
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		return len(quoted)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	var value json.RawMessage
	if err := decoder.Decode(&value); err == nil {
		return int(decoder.InputOffset())
	}
	if plain := strings.Index(text, ": "); plain >= 0 {
		return plain
	}
	return len(text)
}

func oneLine(message string) string {
	return strings.Join(strings.Fields(message), " ")
}
