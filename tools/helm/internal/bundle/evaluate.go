package bundle

import (
	"context"
	"path"
	"regexp"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/engine"
)

const (
	// chartName is the name of a bundle's chart.
	chartName = "manifests"
	// templates is the folder of the files in the chart.
	templates = "templates"
)

// Release describes the release for which files are evaluated, as .Release and .Capabilities of templates.
type Release struct {
	common.ReleaseOptions
	// Capabilities may be nil.
	Capabilities *common.Capabilities
}

// Evaluate evaluates the files as Helm templates. A file whose name starts with an underscore only defines templates. The
// functions of templates read neither the cluster nor the network.
func Evaluate(ctx context.Context, files []File, values map[string]any, release Release) ([]File, error) {
	chart := &helmchart.Chart{Metadata: metadata("0.0.0")}
	for _, file := range files {
		chart.Templates = append(chart.Templates, &common.File{Name: path.Join(templates, file.Path), Data: file.Content})
	}
	data, err := chartutil.ToRenderValues(chart, values, release.ReleaseOptions, release.Capabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{}.RenderWithContext(ctx, chart, data)
	if err != nil {
		return nil, templateError(err)
	}
	evaluated := make([]File, 0, len(files))
	for _, file := range files {
		if text, found := rendered[path.Join(chartName, templates, file.Path)]; found {
			evaluated = append(evaluated, File{Path: file.Path, Content: []byte(text)})
		}
	}
	return evaluated, nil
}

// templatePlace matches the file and the line in a message of Helm's engine.
var templatePlace = regexp.MustCompile(chartName + "/" + templates + `/([^\s:()]+):(\d+)(?::\d+)?`)

// templateError returns the file and line of an error of Helm's engine.
func templateError(err error) *Error {
	message := err.Error()
	found := templatePlace.FindStringSubmatch(message)
	if found == nil {
		return &Error{Message: message}
	}
	line, _ := strconv.Atoi(found[2])
	message = strings.ReplaceAll(message, chartName+"/"+templates+"/", "")
	return &Error{File: found[1], Line: line, Message: strings.Join(strings.Fields(message), " ")}
}
