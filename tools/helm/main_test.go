package main

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc"

	"chandler.dev/tools/helm/internal/operation"
	"chandler.dev/tools/helm/internal/server"
)

func TestRegister(t *testing.T) {
	cases := map[string]struct {
		service string
		want    []string
		fails   bool
	}{
		"tool":     {"tool", []string{"chandler.tool.v1.PackageTool"}, false},
		"template": {"template", []string{"chandler.template.v1.TemplateService"}, false},
		"unknown":  {"all", nil, true},
		"empty":    {"", nil, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			grpcServer := grpc.NewServer()
			tool := server.New("test", operation.NewSet(), nil, slog.New(slog.DiscardHandler))
			if err := register(grpcServer, c.service, tool); (err != nil) != c.fails {
				t.Fatalf("got %v", err)
			}
			if got := slices.Sorted(maps.Keys(grpcServer.GetServiceInfo())); !slices.Equal(got, c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
		})
	}
}
