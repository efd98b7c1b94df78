package template

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// maxItems is the maximum number of items or bytes that one function call may create. A running call cannot be
// interrupted.
const maxItems = 1_000_000

// functions returns Sprig's text functions without those that read the environment or the network, with limits on
// those that create large results from small arguments, and with Helm's functions for YAML.
func functions() template.FuncMap {
	all := sprig.TxtFuncMap()
	for _, name := range []string{"env", "expandenv", "getHostByName"} {
		delete(all, name)
	}
	maps.Copy(all, limitedFunctions(all))
	maps.Copy(all, yamlFunctions())
	maps.Copy(all, printing())
	return all
}

func limitedFunctions(all template.FuncMap) template.FuncMap {
	until := all["until"].(func(int) []int)
	untilStep := all["untilStep"].(func(int, int, int) []int)
	seq := all["seq"].(func(...int) string)
	return template.FuncMap{
		"until": func(count int) ([]int, error) {
			if count > maxItems || count < -maxItems {
				return nil, tooManyItems("until")
			}
			return until(count), nil
		},
		"untilStep": func(start, stop, step int) ([]int, error) {
			if step != 0 && (stop-start)/step > maxItems {
				return nil, tooManyItems("untilStep")
			}
			return untilStep(start, stop, step), nil
		},
		"seq": func(params ...int) (string, error) {
			if slices.ContainsFunc(params, func(n int) bool { return n > maxItems || n < -maxItems }) {
				return "", tooManyItems("seq")
			}
			return seq(params...), nil
		},
		"repeat": func(count int, text string) (string, error) {
			if count < 0 || count > maxItems || count*len(text) > maxItems {
				return "", tooManyItems("repeat")
			}
			return strings.Repeat(text, count), nil
		},
	}
}

func tooManyItems(function string) error {
	return harmless(fmt.Sprintf("%s creates more than %d items", function, maxItems))
}
