// Package values parses and merges values as Helm does for the files of its --values flag.
package values

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// Merge parses the layers and merges them. Later layers override earlier ones.
//
// Numbers are float64 for both text and JSON, as in Helm's rendering and in the values that Helm reads from a release.
func Merge(layers []*toolv1.Values) (map[string]any, error) {
	merged := map[string]any{}
	for i, layer := range layers {
		parsed, err := parse(layer)
		if err != nil {
			return nil, failure.Wrap(toolv1.FailureCategory_FAILURE_CATEGORY_INVALID_VALUES, err,
				"values layer %d of %d is invalid: %v", i+1, len(layers), err)
		}
		merged = loader.MergeMaps(merged, parsed)
	}
	return merged, nil
}

func parse(layer *toolv1.Values) (map[string]any, error) {
	switch content := layer.GetContent().(type) {
	case *toolv1.Values_Text:
		parsed, err := loader.LoadValues(strings.NewReader(content.Text))
		if err != nil {
			return nil, WithoutQuotedInput(rootCause(err))
		}
		return parsed, nil
	case *toolv1.Values_Json:
		if !json.Valid(content.Json) {
			return nil, invalidJSON(content.Json)
		}
		parsed := map[string]any{}
		if err := json.Unmarshal(content.Json, &parsed); err != nil {
			return nil, err
		}
		return parsed, nil
	default:
		return map[string]any{}, nil
	}
}

func invalidJSON(data []byte) error {
	var into any
	err := json.Unmarshal(data, &into)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		return fmt.Errorf("line %d: %w", line, err)
	}
	return err
}

// rootCause unwraps err to the parser's own message, such as "line 2: mapping values are not allowed".
func rootCause(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}

// quotedInput matches the parts of a parser error that quote the input.
var quotedInput = regexp.MustCompile("(unknown anchor) '[^']*'|(invalid map key|unsupported map key of type): (?s:.*)| `[^`]*`")

// WithoutQuotedInput returns an error of the YAML parser without the parts of the input that it quotes.
func WithoutQuotedInput(err error) error {
	return errors.New(quotedInput.ReplaceAllString(err.Error(), "$1$2"))
}

// Canonical returns the canonical JSON of values: sorted keys, no white space, no HTML escapes.
func Canonical(values map[string]any) ([]byte, error) {
	if values == nil {
		values = map[string]any{}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(values); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Digest returns "sha256:<hex>" of the canonical JSON.
func Digest(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:])
}
