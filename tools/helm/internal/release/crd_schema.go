package release

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// comparison collects in which ways the new schema of a version allows less than the old one. Rules in
// x-kubernetes-validations are not compared.
type comparison struct {
	version string
	// keepsUnknown is set if the API server keeps all fields that the new schema does not have.
	keepsUnknown bool
	// problems are why the API server would remove fields of existing objects, or could not read them: a removed field and
	// another type.
	problems []string
	// limits are values that are no longer allowed. Stored objects with them stay as they are.
	limits []string
}

// add adds a problem. The format gets the place first.
func (c *comparison) add(path, format string, args ...any) {
	c.problems = append(c.problems, c.describe(path, format, args))
}

// limit adds values that are no longer allowed. The format gets the place first.
func (c *comparison) limit(path, format string, args ...any) {
	c.limits = append(c.limits, c.describe(path, format, args))
}

func (c *comparison) describe(path, format string, args []any) string {
	place := path
	if path == "" {
		place = "the object"
	}
	return fmt.Sprintf("in version %s "+format, append([]any{c.version, place}, args...)...)
}

// compare compares the schemas of one field. A nil schema allows everything.
func (c *comparison) compare(path string, old, next map[string]any) {
	if len(next) == 0 {
		return
	}
	if !c.compareTypes(path, old, next) {
		return
	}
	c.compareValues(path, old, next)
	c.compareLimits(path, old, next)
	c.compareAlternatives(path, old, next)
	c.compareUnknownFields(path, old, next)
	c.compareProperties(path, old, next)
	c.compareRequired(path, old, next)
	if items := child(old, "items"); items != nil {
		c.compare(path+"[]", items, child(next, "items"))
	}
}

// compareTypes reports whether the new type allows the values of the old type.
func (c *comparison) compareTypes(path string, old, next map[string]any) bool {
	before, after := schemaTypes(old), schemaTypes(next)
	if len(after) == 0 {
		return true
	}
	allowed := len(before) > 0 && !slices.ContainsFunc(before, func(name string) bool {
		return !slices.Contains(after, name) && !(name == "integer" && slices.Contains(after, "number"))
	})
	if !allowed {
		c.add(path, "the type of %s changes from %s to %s", typeNames(before), typeNames(after))
		return false
	}
	return true
}

// schemaTypes returns the types that a schema allows, or none if it allows all of them.
func schemaTypes(s map[string]any) []string {
	if s["x-kubernetes-int-or-string"] == true {
		return []string{"integer", "string"}
	}
	if name, _ := s["type"].(string); name != "" {
		return []string{name}
	}
	return nil
}

func typeNames(types []string) string {
	if len(types) == 0 {
		return "any type"
	}
	return strings.Join(types, " or ")
}

// compareValues compares which single values are allowed.
func (c *comparison) compareValues(path string, old, next map[string]any) {
	if old["nullable"] == true && next["nullable"] != true {
		c.limit(path, "%s can no longer be null")
	}
	allowed := jsonSet(next["enum"])
	if len(allowed) == 0 {
		return
	}
	before := jsonSet(old["enum"])
	if len(before) == 0 {
		c.limit(path, "%s allows only some values")
		return
	}
	for _, value := range slices.Sorted(maps.Keys(before)) {
		if !allowed[value] {
			c.limit(path, "%s no longer allows the value %s", value)
		}
	}
}

// jsonSet returns the JSON of each item of a list.
func jsonSet(list any) map[string]bool {
	items, _ := list.([]any)
	set := make(map[string]bool, len(items))
	for _, item := range items {
		if text, err := json.Marshal(item); err == nil {
			set[string(text)] = true
		}
	}
	return set
}

// unvalidatedFormats are formats that an API server does not validate.
var unvalidatedFormats = []string{"int32", "int64", "float", "double"}

// compareLimits compares the limits of lengths, sizes, numbers and texts.
func (c *comparison) compareLimits(path string, old, next map[string]any) {
	for _, name := range []string{"maxLength", "maxItems", "maxProperties", "maximum"} {
		c.compareLimit(path, name, old, next, func(before, after float64) bool { return after < before })
	}
	for _, name := range []string{"minLength", "minItems", "minProperties"} {
		if number(next[name]) != nil && *number(next[name]) > 0 {
			c.compareLimit(path, name, old, next, func(before, after float64) bool { return after > before })
		}
	}
	c.compareLimit(path, "minimum", old, next, func(before, after float64) bool { return after > before })
	c.compareLimit(path, "multipleOf", old, next, func(before, after float64) bool { return math.Mod(before, after) != 0 })
	for _, name := range []string{"exclusiveMaximum", "exclusiveMinimum", "uniqueItems"} {
		if next[name] == true && old[name] != true {
			c.limit(path, "%s gets the limit %s", name)
		}
	}
	for _, name := range []string{"pattern", "format"} {
		before, _ := old[name].(string)
		after, _ := next[name].(string)
		if after != "" && after != before && !slices.Contains(unvalidatedFormats, after) {
			c.limit(path, "%s gets another %s", name)
		}
	}
}

func (c *comparison) compareLimit(
	path, name string, old, next map[string]any, narrower func(before, after float64) bool,
) {
	before, after := number(old[name]), number(next[name])
	switch {
	case after == nil:
	case before == nil:
		c.limit(path, "%s gets the limit %s %s", name, numberText(*after))
	case narrower(*before, *after):
		c.limit(path, "the %[3]s of %[2]s changes from %[4]s to %[5]s", name, numberText(*before), numberText(*after))
	}
}

// number returns a number of JSON or YAML, or nil.
func number(value any) *float64 {
	var n float64
	switch value := value.(type) {
	case int64:
		n = float64(value)
	case float64:
		n = value
	default:
		return nil
	}
	return &n
}

func numberText(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// compareAlternatives compares the schemas that a value must match as well. They are compared as a whole: another schema
// may allow less.
func (c *comparison) compareAlternatives(path string, old, next map[string]any) {
	for _, name := range []string{"anyOf", "oneOf"} {
		before, after := jsonSet(old[name]), jsonSet(next[name])
		// The alternatives of x-kubernetes-int-or-string repeat its types.
		repeated := name == "anyOf" && next["x-kubernetes-int-or-string"] == true && len(before) == 0
		if len(after) > 0 && !repeated && (len(before) == 0 || !contains(after, before)) {
			c.limit(path, "%s allows fewer alternatives (%s)", name)
		}
	}
	if !contains(jsonSet(old["allOf"]), jsonSet(next["allOf"])) {
		c.limit(path, "%s has to match more schemas (allOf)")
	}
	// As JSON, because the numbers of YAML and JSON have different types.
	if next["not"] != nil && !contains(jsonSet([]any{old["not"]}), jsonSet([]any{next["not"]})) {
		c.limit(path, "%s excludes other values (not)")
	}
}

// contains reports whether a set contains all items of another.
func contains(set, items map[string]bool) bool {
	for item := range items {
		if !set[item] {
			return false
		}
	}
	return true
}

// compareUnknownFields compares whether fields may have any name.
func (c *comparison) compareUnknownFields(path string, old, next map[string]any) {
	if c.keeps(next) {
		return
	}
	additional, open := additionalProperties(next)
	if old["x-kubernetes-preserve-unknown-fields"] == true && !open {
		c.add(path, "%s no longer keeps fields that its schema does not have (x-kubernetes-preserve-unknown-fields)")
		return
	}
	before, openBefore := additionalProperties(old)
	switch {
	case before == nil && !openBefore, open:
	case additional == nil:
		c.add(path, "%s no longer allows fields of any name (additionalProperties)")
	default:
		c.compare(path+"[*]", before, additional)
	}
}

// keeps reports whether the API server keeps fields that the schema does not have.
func (c *comparison) keeps(s map[string]any) bool {
	return c.keepsUnknown || s["x-kubernetes-preserve-unknown-fields"] == true
}

// additionalProperties returns the schema of fields of any name, and whether they may have any value.
func additionalProperties(s map[string]any) (fields map[string]any, open bool) {
	switch value := s["additionalProperties"].(type) {
	case bool:
		return nil, value
	case map[string]any:
		return value, len(value) == 0
	}
	return nil, false
}

// compareProperties compares the fields of an object.
func (c *comparison) compareProperties(path string, old, next map[string]any) {
	before, after := child(old, "properties"), child(next, "properties")
	additional, open := additionalProperties(next)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		field := path + "." + name
		switch {
		case isImplicit(path, next, name):
		case child(after, name) != nil:
			c.compare(field, child(before, name), child(after, name))
		case open:
		case additional != nil:
			c.compare(field, child(before, name), additional)
		case !c.keeps(next):
			c.add(field, "the field %s is removed")
		}
	}
}

// isImplicit reports whether every object has a field, whether or not the schema has it.
func isImplicit(path string, s map[string]any, name string) bool {
	isRoot := path == "" || s["x-kubernetes-embedded-resource"] == true
	return isRoot && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name)
}

// compareRequired finds fields that objects need now. The API server adds fields that have a default.
func (c *comparison) compareRequired(path string, old, next map[string]any) {
	before, properties := jsonSet(old["required"]), child(next, "properties")
	required, _ := next["required"].([]any)
	for _, item := range required {
		name, ok := item.(string)
		text, err := json.Marshal(name)
		if !ok || err != nil || before[string(text)] || isImplicit(path, next, name) {
			continue
		}
		if _, hasDefault := child(properties, name)["default"]; !hasDefault {
			c.limit(path+"."+name, "the field %s becomes required")
		}
	}
}

// child returns a schema or a map of schemas inside of a schema. It is not nil if it exists.
func child(s map[string]any, name string) map[string]any {
	inner, _ := s[name].(map[string]any)
	return inner
}
