package template

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

const (
	// maxProduced is the maximum size of everything that the functions of one execution produce, in bytes. What is no longer
	// used counts, too.
	maxProduced = 64 << 20
	// maxValue is the maximum size of the arguments of one function call, and of a value that is printed.
	maxValue = 8 << 20
)

// budget limits what the functions of a template use and produce. A call cannot be interrupted, so its arguments and the size of
// its result are checked before it.
type budget struct {
	run      *execution
	produced int
}

var errorType = reflect.TypeFor[error]()

// wrap returns the functions with limits.
func (b *budget) wrap(functions template.FuncMap) template.FuncMap {
	wrapped := make(template.FuncMap, len(functions))
	for name, function := range functions {
		wrapped[name] = b.wrapFunction(name, reflect.ValueOf(function))
	}
	return wrapped
}

func (b *budget) wrapFunction(name string, function reflect.Value) any {
	original := function.Type()
	in := make([]reflect.Type, original.NumIn())
	for i := range in {
		in[i] = original.In(i)
	}
	out := []reflect.Type{original.Out(0), errorType}
	call := function.Call
	if original.IsVariadic() {
		call = function.CallSlice
	}
	failed := func(err error) []reflect.Value {
		return []reflect.Value{reflect.Zero(out[0]), reflect.ValueOf(&err).Elem()}
	}
	return reflect.MakeFunc(reflect.FuncOf(in, out, original.IsVariadic()), func(args []reflect.Value) []reflect.Value {
		if err := b.check(name, args); err != nil {
			return failed(err)
		}
		results := call(args)
		if len(results) == 2 && !results[1].IsNil() {
			return results
		}
		if err := b.charge(name, results[0]); err != nil {
			return failed(err)
		}
		return []reflect.Value{results[0], reflect.Zero(errorType)}
	}).Interface()
}

// check is called before a function.
func (b *budget) check(name string, args []reflect.Value) error {
	if b.run == nil {
		return errNotRunning
	}
	if err := b.run.check(); err != nil {
		return err
	}
	left := maxValue
	for _, arg := range args {
		if !measure(arg, 0, &left) {
			return harmless(fmt.Sprintf("the arguments of %s are larger than %d MiB, or nested too deeply", name, maxValue>>20))
		}
	}
	if estimate, ok := estimates[name]; ok && estimate(plain(args)) > maxValue {
		return harmless(fmt.Sprintf("%s creates more than %d MiB", name, maxValue>>20))
	}
	return nil
}

// charge is called with the result of a function.
func (b *budget) charge(name string, result reflect.Value) error {
	left := maxProduced - b.produced
	before := left
	if slices.Contains(reused, name) {
		left -= shallow(result)
	} else {
		measure(result, 0, &left)
	}
	b.produced += before - left
	if left < 0 {
		return harmless(fmt.Sprintf("the functions of the template create more than %d MiB of text and lists", maxProduced>>20))
	}
	return nil
}

// printable is called with every value that is printed: it may refer to the same part many times, or to itself.
func (b *budget) printable(value any) (any, error) {
	left := maxValue
	if !measure(reflect.ValueOf(value), 0, &left) {
		return nil, harmless(fmt.Sprintf("a value is larger than %d MiB, or nested too deeply", maxValue>>20))
	}
	return value, nil
}

// reused are the functions whose results consist of parts of their arguments.
var reused = []string{
	"append", "coalesce", "chunk", "compact", "concat", "default", "dict", "dig", "first", "get", "initial", "last", "list",
	"merge", "mergeOverwrite", "mustAppend", "mustChunk", "mustCompact", "mustFirst", "mustInitial", "mustLast", "mustMerge",
	"mustMergeOverwrite", "mustPrepend", "mustPush", "mustRest", "mustReverse", "mustSlice", "mustUniq", "mustWithout", "omit",
	"pick", "pluck", "prepend", "push", "required", "rest", "reverse", "set", "slice", "ternary", "tuple", "uniq", "unset",
	"values", "without",
}

const (
	// nodeSize is the size that is counted for a value in a list or a map, without its content.
	nodeSize = 16
	// maxDepth is the maximum nesting of a value.
	maxDepth = 100
)

// shallow returns the size of a value without its content.
func shallow(value reflect.Value) int {
	for value.Kind() == reflect.Interface && !value.IsNil() {
		value = value.Elem()
	}
	switch value.Kind() {
	case reflect.Slice, reflect.Map, reflect.Array:
		return nodeSize * (1 + value.Len())
	default:
		return nodeSize
	}
}

// measure subtracts the size of a value from left: that of the text that it would be printed as, so that a part counts as often as
// it is referred to. It returns false, and stops, if nothing is left or the value is nested too deeply.
func measure(value reflect.Value, depth int, left *int) bool {
	*left -= nodeSize
	if *left < 0 || depth > maxDepth {
		*left = min(*left, -1)
		return false
	}
	switch value.Kind() {
	case reflect.String:
		*left -= value.Len()
	case reflect.Interface, reflect.Pointer:
		if value.IsNil() {
			return true
		}
		return measure(value.Elem(), depth+1, left)
	case reflect.Slice, reflect.Array:
		return measureList(value, depth, left)
	case reflect.Map:
		for entries := value.MapRange(); entries.Next(); {
			if !measure(entries.Key(), depth+1, left) || !measure(entries.Value(), depth+1, left) {
				return false
			}
		}
	default:
		// Numbers, and structs of functions, such as times.
	}
	return *left >= 0
}

func measureList(value reflect.Value, depth int, left *int) bool {
	switch value.Type().Elem().Kind() {
	case reflect.Interface, reflect.String, reflect.Slice, reflect.Map, reflect.Pointer, reflect.Array:
		for i := range value.Len() {
			if !measure(value.Index(i), depth+1, left) {
				return false
			}
		}
	default:
		*left -= value.Len() * int(value.Type().Elem().Size()) //nolint:gosec // small
	}
	return *left >= 0
}

// estimates return the size of the results of functions that create large results from small arguments.
var estimates = map[string]func(args []any) float64{
	"indent":                     indented,
	"nindent":                    indented,
	"join":                       joined,
	"replace":                    replaced,
	"regexReplaceAll":            regexReplaced,
	"mustRegexReplaceAll":        regexReplaced,
	"regexReplaceAllLiteral":     regexReplaced,
	"mustRegexReplaceAllLiteral": regexReplaced,
	"wrapWith":                   wrapped,
	"printf":                     formatted,
	"randAlpha":                  counted,
	"randAlphaNum":               counted,
	"randAscii":                  counted,
	"randNumeric":                counted,
	"randBytes":                  counted,
}

// plain returns the arguments of a call. Those of a variadic parameter are one list.
func plain(args []reflect.Value) []any {
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = arg.Interface()
	}
	return values
}

func textAt(args []any, at int) string {
	text, _ := args[at].(string)
	return text
}

func numberAt(args []any, at int) float64 {
	number, _ := args[at].(int)
	return max(float64(number), 0)
}

func indented(args []any) float64 {
	text := textAt(args, 1)
	return numberAt(args, 0)*float64(strings.Count(text, "\n")+1) + float64(len(text))
}

func counted(args []any) float64 { return numberAt(args, 0) }

// joined estimates the separators. The items were measured before.
func joined(args []any) float64 {
	list := reflect.ValueOf(args[1])
	if kind := list.Kind(); kind != reflect.Slice && kind != reflect.Array {
		return 0
	}
	return float64(list.Len()) * float64(len(textAt(args, 0)))
}

func replaced(args []any) float64 {
	text := textAt(args, 2)
	return float64(strings.Count(text, textAt(args, 0)))*float64(len(textAt(args, 1))) + float64(len(text))
}

// regexReplaced assumes that every reference in the replacement is to the whole match.
func regexReplaced(args []any) float64 {
	text, replacement := textAt(args, 1), textAt(args, 2)
	matches := len(text) + 1
	if matches*(len(replacement)+1) > maxValue {
		if expression, err := regexp.Compile(textAt(args, 0)); err == nil {
			matches = len(expression.FindAllStringIndex(text, maxValue/(len(replacement)+1)+1))
		}
	}
	references := strings.Count(replacement, "$")
	return float64(len(text))*float64(references+1) + float64(matches)*float64(len(replacement))
}

func wrapped(args []any) float64 {
	text := float64(len(textAt(args, 2)))
	return text + (text/max(numberAt(args, 0), 1)+1)*float64(len(textAt(args, 1)))
}

// formatted sums up the widths and precisions in a format, and those that are arguments.
func formatted(args []any) float64 {
	format := textAt(args, 0)
	sum, number := 0.0, 0.0
	for _, char := range format {
		if char >= '0' && char <= '9' {
			number = min(number*10+float64(char-'0'), math.MaxInt32)
			continue
		}
		sum, number = sum+number, 0
	}
	if stars := strings.Count(format, "*"); stars > 0 {
		list, _ := args[1].([]any)
		largest := 0.0
		for _, arg := range list {
			if value := reflect.ValueOf(arg); value.CanInt() {
				largest = max(largest, math.Abs(float64(value.Int())))
			}
		}
		sum += float64(stars) * largest
	}
	return sum + number
}

// printing returns the functions of text/template that format values, so that they have limits, too.
func printing() template.FuncMap {
	return template.FuncMap{
		"print":    fmt.Sprint,
		"printf":   fmt.Sprintf,
		"println":  fmt.Sprintln,
		"html":     template.HTMLEscaper,
		"js":       template.JSEscaper,
		"urlquery": template.URLQueryEscaper,
	}
}
