// Package build builds the objects of a folder with manifests or a kustomization.
package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
	"chandler.dev/tools/helm/internal/bundle"
	"chandler.dev/tools/helm/internal/cpulimit"
	"chandler.dev/tools/helm/internal/kustomize"
	"chandler.dev/tools/helm/internal/redact"
)

const (
	defaultTimeout   = 30 * time.Second
	defaultMaxOutput = 16 << 20
	// stuckTimeout is how long a build may continue after its timeout. It cannot be interrupted, and the next one waits for it.
	stuckTimeout = time.Minute
)

// Builder runs builds, one at a time.
type Builder struct {
	// CPU limits the CPU time of a build. nil means no limit.
	CPU *cpulimit.Limit

	slot chan struct{}
	log  *slog.Logger
	// giveUp is called if a build does not end. It should exit the process.
	giveUp func()
}

// NewBuilder returns a builder. It calls giveUp if a build does not end.
func NewBuilder(log *slog.Logger, giveUp func()) *Builder {
	return &Builder{slot: make(chan struct{}, 1), log: log, giveUp: giveUp}
}

// ErrTimeout means that a build has taken too long. It may still run, so the process should get no more calls.
var ErrTimeout = errors.New("timeout")

// Build builds the objects of a folder. It returns an error if that takes too long; other errors are part of the response.
func (b *Builder) Build(ctx context.Context, request *templatev1.BuildRequest) (*templatev1.BuildResponse, error) {
	timeout := defaultTimeout
	if request.GetTimeout().AsDuration() > 0 {
		timeout = request.GetTimeout().AsDuration()
	}
	limit := defaultMaxOutput
	if request.GetMaxOutputBytes() > 0 {
		limit = int(request.GetMaxOutputBytes())
	}
	objects, err := b.run(ctx, timeout, func(ctx context.Context) ([]*templatev1.BuiltObject, error) {
		return buildAll(ctx, request, limit)
	})
	if errors.Is(err, ErrTimeout) {
		return nil, err
	}
	if err != nil {
		return &templatev1.BuildResponse{Outcome: &templatev1.BuildResponse_Failure{Failure: newFailure(err)}}, nil
	}
	return &templatev1.BuildResponse{Outcome: &templatev1.BuildResponse_Built{
		Built: &templatev1.BuiltObjects{Objects: objects},
	}}, nil
}

type result struct {
	objects []*templatev1.BuiltObject
	err     error
}

// run runs work when no other build runs, and returns when it has ended or the time is over.
func (b *Builder) run(
	ctx context.Context, timeout time.Duration, work func(context.Context) ([]*templatev1.BuiltObject, error),
) ([]*templatev1.BuiltObject, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case b.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: other builds took longer than %s", ErrTimeout, timeout)
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-b.slot }()
		b.CPU.Run(func() { done <- b.recovered(ctx, work) })
	}()
	select {
	case ended := <-done:
		return ended.objects, ended.err
	case <-ctx.Done():
		stuck := time.AfterFunc(stuckTimeout, b.giveUp)
		go func() {
			<-done
			stuck.Stop()
		}()
		return nil, fmt.Errorf("%w: the build took longer than %s", ErrTimeout, timeout)
	}
}

// recovered runs work and returns a panic as an error.
func (b *Builder) recovered(
	ctx context.Context, work func(context.Context) ([]*templatev1.BuiltObject, error),
) (ended result) {
	defer func() {
		if reason := recover(); reason != nil {
			b.log.Error("a build panicked", "stack", string(debug.Stack()))
			ended = result{err: errors.New("the build panicked: simplify the files, or report the problem")}
		}
	}()
	objects, err := work(ctx)
	return result{objects: objects, err: err}
}

func buildAll(ctx context.Context, request *templatev1.BuildRequest, limit int) ([]*templatev1.BuiltObject, error) {
	values, err := parseValues(request.GetValues())
	if err != nil {
		return nil, err
	}
	folder, err := cleanFolder(request.GetPath())
	if err != nil {
		return nil, err
	}
	files, err := newFiles(request.GetFiles())
	if err != nil {
		return nil, err
	}
	objects, err := buildObjects(ctx, files, folder, values)
	if err != nil {
		return nil, redacted(err, values)
	}
	return newObjects(objects, limit)
}

func buildObjects(ctx context.Context, files []bundle.File, folder string, values map[string]any) ([]bundle.Object, error) {
	if kustomize.IsKustomization(files, folder) {
		return kustomize.Build(files, folder, values)
	}
	manifests := manifestsBelow(files, folder)
	if len(manifests) == 0 {
		return nil, fmt.Errorf("the folder %s has no manifests", folder)
	}
	return bundle.Render(ctx, manifests, values, bundle.Release{})
}

func parseValues(data []byte) (map[string]any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var values map[string]any
	if err := utiljson.Unmarshal(data, &values); err != nil {
		// The message of the parser may quote the values.
		return nil, errors.New("the values are not a JSON object")
	}
	return values, nil
}

// cleanFolder returns the folder to build. "." is the root.
func cleanFolder(folder string) (string, error) {
	cleaned := path.Clean(strings.Trim(folder, "/"))
	if !fs.ValidPath(cleaned) {
		return "", errors.New("the path of the folder is outside of the Source")
	}
	return cleaned, nil
}

func newFiles(sent []*templatev1.SourceFile) ([]bundle.File, error) {
	files := make([]bundle.File, 0, len(sent))
	for _, file := range sent {
		if !fs.ValidPath(file.GetPath()) {
			return nil, errors.New("the path of a file is outside of the Source")
		}
		files = append(files, bundle.File{Path: file.GetPath(), Content: file.GetContent()})
	}
	return files, nil
}

func manifestsBelow(files []bundle.File, folder string) []bundle.File {
	var found []bundle.File
	for _, file := range files {
		inside, below := file.Path, true
		if folder != "." {
			inside, below = strings.CutPrefix(file.Path, folder+"/")
		}
		if below && bundle.IsManifest(inside) {
			found = append(found, file)
		}
	}
	return found
}

func newObjects(objects []bundle.Object, limit int) ([]*templatev1.BuiltObject, error) {
	built := make([]*templatev1.BuiltObject, 0, len(objects))
	size := 0
	for _, object := range objects {
		text, err := object.YAML()
		if err != nil {
			return nil, err
		}
		if size += len(text); size > limit {
			return nil, fmt.Errorf("the objects are larger than %d bytes", limit)
		}
		built = append(built, &templatev1.BuiltObject{
			Yaml: string(text),
			File: object.File,
			Line: uint32(max(object.Line, 0)), //nolint:gosec // never negative
		})
	}
	return built, nil
}

// redacted returns the error without the values.
func redacted(err error, values map[string]any) error {
	secrets := redact.Strings(values)
	if problem, ok := errors.AsType[*bundle.Error](err); ok {
		return &bundle.Error{File: problem.File, Line: problem.Line, Message: redact.Message(problem.Message, secrets)}
	}
	return errors.New(redact.Message(err.Error(), secrets))
}

func newFailure(err error) *templatev1.BuildFailure {
	if problem, ok := errors.AsType[*bundle.Error](err); ok {
		return &templatev1.BuildFailure{
			Message: problem.Message,
			File:    problem.File,
			Line:    uint32(max(problem.Line, 0)), //nolint:gosec // never negative
		}
	}
	return &templatev1.BuildFailure{Message: err.Error()}
}
