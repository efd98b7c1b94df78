package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"chandler.dev/tools/helm/internal/values"
)

// KustomizationNames are the names of a file that makes its folder a kustomization.
var KustomizationNames = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// document is one YAML document of a file.
type document struct {
	text []byte
	// line is the line of the file on which text starts.
	line int
}

// split returns the documents of a file.
func split(content []byte) []document {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	var documents []document
	begin, at, start, number := 0, 0, 1, 0
	for line := range bytes.Lines(content) {
		number++
		if isSeparator(line) {
			documents = append(documents, document{text: content[begin:at], line: start})
			// A document may begin on the line of its separator.
			begin, start = at+len("---"), number
		}
		at += len(line)
	}
	return append(documents, document{text: content[begin:], line: start})
}

// isSeparator reports whether a line starts or ends a document.
func isSeparator(line []byte) bool {
	for _, marker := range []string{"---", "..."} {
		if rest, found := bytes.CutPrefix(line, []byte(marker)); found {
			return len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")
		}
	}
	return false
}

// firstLine returns the line of the file on which the content of the document starts, or 0 if it has only comments and
// directives.
func (d document) firstLine() int {
	line := d.line
	for text := range bytes.Lines(d.text) {
		text = bytes.TrimSpace(text)
		if len(text) > 0 && text[0] != '#' && text[0] != '%' {
			return line
		}
		line++
	}
	return 0
}

func parseFile(file File) ([]Object, error) {
	if slices.Contains(KustomizationNames, path.Base(file.Path)) {
		return nil, &Error{File: file.Path, Message: "this is a kustomization in a folder of plain manifests: " +
			"use the path of its folder, or add a kustomization to the folder above"}
	}
	var objects []Object
	for _, document := range split(file.Content) {
		found, err := parseDocument(file.Path, document)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// parseDocument returns the object of a document, or the items of a list.
func parseDocument(file string, document document) ([]Object, error) {
	line := document.firstLine()
	if line == 0 {
		return nil, nil
	}
	data, err := yaml.YAMLToJSONStrict(document.text)
	if err != nil {
		return nil, syntaxError(file, document, err)
	}
	var content map[string]any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, &Error{File: file, Line: line, Message: "the document is not a Kubernetes object"}
	}
	if len(content) == 0 {
		return nil, nil
	}
	return newObjects(content, file, line)
}

// newObjects checks an object and returns it, or the items of a list.
func newObjects(content map[string]any, file string, line int) ([]Object, error) {
	object := &unstructured.Unstructured{Object: content}
	if object.GetAPIVersion() == "" || object.GetKind() == "" {
		return nil, &Error{File: file, Line: line, Message: "the object has no apiVersion or no kind"}
	}
	if items, ok := content["items"].([]any); ok && strings.HasSuffix(object.GetKind(), "List") {
		return listItems(items, file, line)
	}
	if object.GetName() == "" {
		return nil, &Error{File: file, Line: line, Message: missingName(object)}
	}
	if problem := checkReplace(object); problem != "" {
		return nil, &Error{File: file, Line: line, Message: problem}
	}
	return []Object{{Unstructured: object, File: file, Line: line}}, nil
}

// missingName describes an object without a name, or with a name that YAML does not read as text, such as y or 1.
func missingName(object *unstructured.Unstructured) string {
	if name, ok, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", "name"); ok && name != nil && name != "" {
		return fmt.Sprintf("metadata.name of %s is %v, not text; put it into quotes", object.GetKind(), name)
	}
	return object.GetKind() + " has no metadata.name"
}

func listItems(items []any, file string, line int) ([]Object, error) {
	var objects []Object
	for _, item := range items {
		content, ok := item.(map[string]any)
		if !ok {
			return nil, &Error{File: file, Line: line, Message: "an item of the list is not a Kubernetes object"}
		}
		found, err := newObjects(content, file, line)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// NewObject parses one YAML document that comes from a file.
func NewObject(text []byte, file string, line int) (Object, error) {
	found, err := parseDocument(file, document{text: text, line: 1})
	if problem, ok := errors.AsType[*Error](err); ok {
		problem.Line = line
	}
	if err != nil {
		return Object{}, err
	}
	if len(found) != 1 {
		return Object{}, &Error{File: file, Line: line, Message: "the document is not one Kubernetes object"}
	}
	object := found[0]
	object.Line = line
	return object, nil
}

// FindLine returns the line of a file on which an object of this kind starts, or 0 if there is none. If there are several, it
// is the one whose name is part of the given name, to which a prefix or suffix may have been added.
func FindLine(content []byte, kind, name string) int {
	line, exact := 0, false
	for _, document := range split(content) {
		found, err := parseDocument("", document)
		if err != nil {
			continue
		}
		for _, object := range found {
			if object.GetKind() != kind || exact {
				continue
			}
			if exact = strings.Contains(name, object.GetName()); exact || line == 0 {
				line = object.Line
			}
		}
	}
	return line
}

// SyntaxError returns the problem that the YAML parser reports for a file.
func SyntaxError(file string, err error) *Error { return syntaxError(file, document{line: 1}, err) }

// lineNumber matches the line in a message of the YAML parser.
var lineNumber = regexp.MustCompile(`line (\d+): `)

func syntaxError(file string, document document, err error) *Error {
	message := values.WithoutQuotedInput(err).Error()
	line := 0
	if found := lineNumber.FindStringSubmatchIndex(message); found != nil {
		if number, err := strconv.Atoi(message[found[2]:found[3]]); err == nil {
			line = document.line + number - 1
		}
		message = message[found[1]:]
	}
	message, _, _ = strings.Cut(strings.TrimPrefix(message, "yaml: "), "\n")
	return &Error{File: file, Line: line, Message: message}
}
