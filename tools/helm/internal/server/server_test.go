package server

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/address"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/operation"
)

func TestRequestWithoutTargetFails(t *testing.T) {
	server := New("test", operation.NewSet(), address.Policy{}, nil, slog.New(slog.DiscardHandler))
	response, err := server.Observe(context.Background(), &toolv1.ObserveRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := response.GetFailure(); got.GetCategory() != failure.Internal || got.GetMessage() != "the request has no target" {
		t.Fatalf("got %v", response)
	}
}

func TestDescribe(t *testing.T) {
	server := New("v1.2.3", operation.NewSet(), address.Policy{}, nil, slog.New(slog.DiscardHandler))
	got, err := server.Describe(context.Background(), &toolv1.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &toolv1.DescribeResponse{
		Name:          "helm",
		Version:       helmVersion(),
		DriverVersion: "v1.2.3",
		Formats:       []string{"application/vnd.cncf.helm.config.v1+json", "application/vnd.chandler.manifests.v1.tar+gzip"},
		Capabilities:  []string{"hooks", "wait", "server-side-apply", "take-ownership", "crds", "rollback", "compare", "test", "render", "impersonate", "object-rules", "helm-records"},
		Records: &toolv1.ReleaseRecords{
			ApiVersion:    "v1",
			Kind:          "Secret",
			Plural:        "secrets",
			LabelSelector: "owner=helm",
			ObjectName:    "sh.helm.release.v1.{release}.v{revision}",
			ReleaseLabel:  "name",
			RevisionLabel: "version",
			StatusLabel:   "status",
			TimeLabels:    []string{"modifiedAt", "createdAt"},

			ObjectLabelSelector: "app.kubernetes.io/managed-by=Helm",
		},
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRecoverPanic(t *testing.T) {
	call := func() (err error) {
		defer recoverPanic(slog.New(slog.DiscardHandler), &err)
		panic("boom")
	}
	if err := call(); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "the Helm driver panicked: boom") {
		t.Fatalf("got %v", err)
	}
}

func TestUnknownFormat(t *testing.T) {
	server := New("test", operation.NewSet(), address.Policy{}, nil, slog.New(slog.DiscardHandler))
	for format, message := range map[string]string{
		"text/yaml":     `does not read packages of format "text/yaml"`,
		"":              "no sha256 digest",
		formatChart:     "no sha256 digest",
		formatManifests: "no sha256 digest",
	} {
		response, err := server.Inspect(context.Background(), &toolv1.InspectRequest{Package: &toolv1.Package{Format: format}})
		if err != nil {
			t.Fatal(err)
		}
		got := response.GetFailure()
		if got.GetCategory() != failure.InvalidPackage || !strings.Contains(got.GetMessage(), message) {
			t.Errorf("%q: got %v", format, got)
		}
	}
}
