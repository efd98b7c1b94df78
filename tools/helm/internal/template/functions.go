package template

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// maxItems bounds what one function call may make: a single call cannot be interrupted.
const maxItems = 1_000_000

// functions are Sprig's text functions less those that read the machine, and with bounds on those that make a lot
// out of a little.
func functions() template.FuncMap {
	all := sprig.TxtFuncMap()
	for _, name := range []string{"env", "expandenv", "getHostByName"} {
		delete(all, name)
	}
	maps.Copy(all, bounded(all))
	maps.Copy(all, placeholders())
	return all
}

func bounded(all template.FuncMap) template.FuncMap {
	until := all["until"].(func(int) []int)
	untilStep := all["untilStep"].(func(int, int, int) []int)
	seq := all["seq"].(func(...int) string)
	return template.FuncMap{
		"until": func(count int) ([]int, error) {
			if count > maxItems || count < -maxItems {
				return nil, tooMany("until")
			}
			return until(count), nil
		},
		"untilStep": func(start, stop, step int) ([]int, error) {
			if step != 0 && (stop-start)/step > maxItems {
				return nil, tooMany("untilStep")
			}
			return untilStep(start, stop, step), nil
		},
		"seq": func(params ...int) (string, error) {
			if slices.ContainsFunc(params, func(n int) bool { return n > maxItems || n < -maxItems }) {
				return "", tooMany("seq")
			}
			return seq(params...), nil
		},
		"repeat": func(count int, text string) (string, error) {
			if count < 0 || count > maxItems || count*len(text) > maxItems {
				return "", tooMany("repeat")
			}
			return strings.Repeat(text, count), nil
		},
	}
}

func tooMany(function string) error {
	return fmt.Errorf("%s makes more than %d items", function, maxItems)
}
