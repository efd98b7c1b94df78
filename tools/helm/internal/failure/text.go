package failure

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// Messages of Helm errors that have no type. Each names the Helm source file and function that creates it.
const (
	// action/validate.go, existingResourceConflict.
	textNotImportable = "exists and cannot be imported into the current release"
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

func fromMessage(err error) *Error {
	message := err.Error()
	switch {
	case strings.Contains(message, textNotImportable):
		return Wrap(Conflict, err, "%s (set takeOwnership to adopt it, or delete it)", ownedByOther(message))
	case strings.Contains(message, textPending):
		return Wrap(Conflict, err, "another operation on the release is in progress")
	case strings.Contains(message, textNameInUse):
		return Wrap(Conflict, err, "a release with this name already exists")
	case strings.Contains(message, textParse), strings.Contains(message, textParseNoLine):
		return Wrap(InvalidPackage, err, "a template of the package failed to parse: %s", message)
	case strings.Contains(message, textSchema):
		return Wrap(InvalidValues, err, "%s", withoutSchemaValues(oneLine(message)))
	case strings.Contains(message, textRemovedAPI):
		return Wrap(Conflict, err,
			"the last revision contains objects of an API that the cluster no longer serves: %s", message)
	}
	return nil
}

// ownedByOther returns the message from the object's kind on: `ConfigMap "a" in namespace "b" exists and cannot be
// imported…`.
func ownedByOther(message string) string {
	at := strings.Index(message, textNotImportable)
	if start := strings.LastIndex(message[:at], ": "); start >= 0 {
		return message[start+2:]
	}
	return message
}

// schemaValue matches the values that the schema validator quotes (kind/kind.go of santhosh-tekuri/jsonschema).
var schemaValue = regexp.MustCompile(
	`(': )(?:'(?:[^'\\]|\\.)*'|[^' ]+) (does not match pattern|is not valid)|` +
		`((?:[mM]inimum|[mM]aximum|multipleOf): got )[^,]+,`)

// withoutSchemaValues removes quoted values from a message of the schema validator.
func withoutSchemaValues(message string) string {
	return schemaValue.ReplaceAllStringFunc(message, func(found string) string {
		parts := schemaValue.FindStringSubmatch(found)
		if parts[3] != "" {
			return parts[3] + "another value,"
		}
		return parts[1] + "the value " + parts[2]
	})
}

// fieldValue matches the text before a value that the API server quotes (Error in
// k8s.io/apimachinery/pkg/util/validation/field).
var fieldValue = regexp.MustCompile(`(?:Invalid|Unsupported|Duplicate) value: `)

// withoutFieldValues removes quoted values from a message of the API server and keeps the field and the problem.
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

// valueLength returns the length of the value at the start of text. The API server writes values quoted, as JSON, or
// plain up to a colon.
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
