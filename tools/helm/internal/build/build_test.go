package build

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
	"chandler.dev/tools/helm/internal/cpulimit"
)

const config = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"

func newTestBuilder() *Builder { return NewBuilder(slog.New(slog.DiscardHandler), func() {}) }

func built(t *testing.T, builder *Builder, request *templatev1.BuildRequest) *templatev1.BuildResponse {
	t.Helper()
	response, err := builder.Build(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func files(pairs ...string) []*templatev1.SourceFile {
	var list []*templatev1.SourceFile
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, &templatev1.SourceFile{Path: pairs[i], Content: []byte(pairs[i+1])})
	}
	return list
}

func TestBuild(t *testing.T) {
	cases := map[string]struct {
		request *templatev1.BuildRequest
		want    string
		file    string
		line    uint32
	}{
		"manifests":          {&templatev1.BuildRequest{Files: files("a.yaml", "# a\n"+config)}, "name: a\n", "a.yaml", 2},
		"in a folder":        {&templatev1.BuildRequest{Files: files("x.yaml", "text", "app/deep/a.yaml", config), Path: "/app/"}, "name: a\n", "app/deep/a.yaml", 1},
		"not evaluated":      {&templatev1.BuildRequest{Files: files("a.yaml", config+"data: {a: '{{ .Values.a }}'}\n"), Values: []byte("{}")}, "'{{ .Values.a }}'", "a.yaml", 1},
		"values":             {&templatev1.BuildRequest{Files: files("a.yaml", config+"data: {a: '{{ .Values.a }}'}\n"), Values: []byte(`{"a":"b"}`)}, "a: b\n", "a.yaml", 0},
		"a kustomization":    {&templatev1.BuildRequest{Files: files("base/a.yaml", config, "base/kustomization.yaml", "resources: [a.yaml]\n", "app/kustomization.yaml", "resources: [../base]\nnamePrefix: x-\n"), Path: "app"}, "name: x-a\n", "base/a.yaml", 1},
		"hidden files":       {&templatev1.BuildRequest{Files: files(".github/ci.yaml", "text", "a.yaml", config)}, "name: a\n", "a.yaml", 1},
		"a hidden root path": {&templatev1.BuildRequest{Files: files(".deploy/a.yaml", config), Path: ".deploy"}, "name: a\n", ".deploy/a.yaml", 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			response := built(t, newTestBuilder(), c.request)
			objects := response.GetBuilt().GetObjects()
			if len(objects) != 1 {
				t.Fatalf("got %v", response)
			}
			got := objects[0]
			if !strings.Contains(got.GetYaml(), c.want) || got.GetFile() != c.file || got.GetLine() != c.line {
				t.Fatalf("got %v", got)
			}
		})
	}
}

func TestBuildFails(t *testing.T) {
	cases := map[string]struct {
		request *templatev1.BuildRequest
		file    string
		line    uint32
		message string
	}{
		"no files":           {&templatev1.BuildRequest{}, "", 0, "no manifests"},
		"no manifests":       {&templatev1.BuildRequest{Files: files("README.md", "text")}, "", 0, "no manifests"},
		"a missing folder":   {&templatev1.BuildRequest{Files: files("a.yaml", config), Path: "missing"}, "", 0, "the folder missing has no manifests"},
		"a similar folder":   {&templatev1.BuildRequest{Files: files("app-2/a.yaml", config), Path: "app"}, "", 0, "no manifests"},
		"no objects":         {&templatev1.BuildRequest{Files: files("a.yaml", "# text\n")}, "", 0, "there are no objects"},
		"a folder outside":   {&templatev1.BuildRequest{Files: files("a.yaml", config), Path: "../a"}, "", 0, "outside"},
		"a file outside":     {&templatev1.BuildRequest{Files: files("../a.yaml", config)}, "", 0, "outside"},
		"an invalid object":  {&templatev1.BuildRequest{Files: files("a.yaml", config+"---\nkind: A\n")}, "a.yaml", 6, "no apiVersion"},
		"a template":         {&templatev1.BuildRequest{Files: files("a.yaml", "a: 1\nb: {{ fail .Values.a }}\n"), Values: []byte(`{"a":"secret-word"}`)}, "a.yaml", 2, "(redacted)"},
		"values are no JSON": {&templatev1.BuildRequest{Files: files("a.yaml", config), Values: []byte("secret-word")}, "", 0, "not a JSON object"},
		"a remote file":      {&templatev1.BuildRequest{Files: files("kustomization.yaml", "resources:\n- https://example.invalid/a.yaml\n")}, "kustomization.yaml", 2, "remote location"},
		"a large output":     {&templatev1.BuildRequest{Files: files("a.yaml", config), MaxOutputBytes: 10}, "", 0, "larger than 10 bytes"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := built(t, newTestBuilder(), c.request).GetFailure()
			if got == nil || got.GetFile() != c.file || got.GetLine() != c.line || !strings.Contains(got.GetMessage(), c.message) {
				t.Fatalf("got %v", got)
			}
			if strings.Contains(got.GetMessage(), "secret-word") {
				t.Fatalf("it quotes a value: %v", got)
			}
		})
	}
}

func TestPanicsAreFailures(t *testing.T) {
	builder := newTestBuilder()
	panics := func(context.Context) ([]*templatev1.BuiltObject, error) { panic("secret-word") }
	if _, err := builder.run(context.Background(), time.Minute, panics); err == nil || strings.Contains(err.Error(), "secret-word") {
		t.Fatalf("got %v", err)
	}
	request := &templatev1.BuildRequest{Files: files("a.yaml", config), Timeout: durationpb.New(time.Minute)}
	if response := built(t, builder, request); response.GetBuilt() == nil {
		t.Fatalf("the next build failed: %v", response)
	}
}

func TestBuildsRunOneAtATimeAndEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gaveUp atomic.Bool
		builder := NewBuilder(slog.New(slog.DiscardHandler), func() { gaveUp.Store(true) })
		release := make(chan struct{})
		stuck := func(context.Context) ([]*templatev1.BuiltObject, error) {
			<-release
			return nil, nil
		}
		quick := func(context.Context) ([]*templatev1.BuiltObject, error) { return nil, nil }

		if _, err := builder.run(t.Context(), time.Second, stuck); !errors.Is(err, ErrTimeout) {
			t.Fatalf("got %v", err)
		}
		if _, err := builder.run(t.Context(), time.Second, quick); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "other builds") {
			t.Fatalf("got %v", err)
		}
		if gaveUp.Load() {
			t.Fatal("it gave up too early")
		}
		time.Sleep(stuckTimeout)
		synctest.Wait()
		if !gaveUp.Load() {
			t.Fatal("it did not give up")
		}
		close(release)
		synctest.Wait()
		if _, err := builder.run(t.Context(), time.Second, quick); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTheCPUTimeOfABuildIsLimited(t *testing.T) {
	exceeded := make(chan struct{})
	builder := newTestBuilder()
	builder.CPU = cpulimit.New(50*time.Millisecond, func() { close(exceeded) })
	spins := func(context.Context) ([]*templatev1.BuiltObject, error) {
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			select {
			case <-exceeded:
				return nil, nil
			default:
			}
		}
		return nil, errors.New("it was not reported")
	}
	if _, err := builder.run(t.Context(), time.Minute, spins); err != nil {
		t.Fatal(err)
	}
}
