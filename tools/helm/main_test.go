package main

import (
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"

	"chandler.dev/tools/helm/internal/address"
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
			log := slog.New(slog.DiscardHandler)
			tool := server.New("test", operation.NewSet(), address.Policy{}, nil, log)
			if err := register(grpcServer, c.service, tool, nil, log); (err != nil) != c.fails {
				t.Fatalf("got %v", err)
			}
			if got := slices.Sorted(maps.Keys(grpcServer.GetServiceInfo())); !slices.Equal(got, c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestExecute(t *testing.T) {
	nanoseconds := func(at time.Duration) string { return strconv.FormatInt(int64(at), 10) }
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]struct {
		commands []string
		expired  bool
		level    slog.Level
	}{
		"no limit":        {[]string{"log-level debug"}, false, slog.LevelDebug},
		"held":            {[]string{"lease-until " + nanoseconds(operation.BootTime()+time.Hour)}, false, slog.LevelInfo},
		"expired":         {[]string{"lease-until " + nanoseconds(operation.BootTime())}, true, slog.LevelInfo},
		"not a time":      {[]string{"lease-until " + nanoseconds(operation.BootTime()), "lease-until soon"}, true, slog.LevelInfo},
		"unknown command": {[]string{"lease 1", "", "log-level loud"}, false, slog.LevelInfo},
	} {
		t.Run(name, func(t *testing.T) {
			lease, level := operation.NewLease(), slog.LevelVar{}
			for _, command := range c.commands {
				execute(command, lease, log, &level)
			}
			if expired := lease.Err() != nil; expired != c.expired || level.Level() != c.level {
				t.Fatalf("expired %v, level %v", expired, level.Level())
			}
		})
	}
}
