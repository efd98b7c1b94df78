// Package server implements the gRPC services of the driver.
package server

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/chart"
	"chandler.dev/tools/helm/internal/cluster"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/operation"
	"chandler.dev/tools/helm/internal/release"
	"chandler.dev/tools/helm/internal/telemetry"
	"chandler.dev/tools/helm/internal/values"
)

// Server implements PackageTool.
type Server struct {
	toolv1.UnimplementedPackageToolServer

	version    string
	log        *slog.Logger
	clusters   *cluster.Pool
	charts     *chart.Store
	operations *operation.Set
	requests   *telemetry.RequestCounter
	tracing    *telemetry.Tracing
}

// New returns a server for a driver of the given version. tracing may be nil.
func New(version string, operations *operation.Set, tracing *telemetry.Tracing, log *slog.Logger) *Server {
	return &Server{
		version:    version,
		log:        log,
		clusters:   cluster.NewPool(),
		charts:     chart.NewStore(),
		operations: operations,
		requests:   telemetry.NewRequestCounter(),
		tracing:    tracing,
	}
}

// formats are the OCI artifact types of the packages that the driver supports.
var formats = []string{"application/vnd.cncf.helm.config.v1+json"}

// capabilities are the optional features of the protocol that the driver supports.
var capabilities = []string{"hooks", "wait", "server-side-apply", "take-ownership", "crds", "helm-records"}

// Describe returns the name, versions and capabilities of the driver.
func (s *Server) Describe(context.Context, *toolv1.DescribeRequest) (*toolv1.DescribeResponse, error) {
	return &toolv1.DescribeResponse{
		Name:              "helm",
		Version:           helmVersion(),
		DriverVersion:     s.version,
		Formats:           formats,
		Capabilities:      capabilities,
		RunningOperations: uint32(s.operations.Running()), //nolint:gosec // never negative
		Requests:          s.requests.Counts(),
		Records:           release.Records(),
	}, nil
}

// helmVersion returns the version of the Helm SDK in the binary.
func helmVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "helm.sh/helm/v4" {
				return module.Version
			}
		}
	}
	return "unknown"
}

// Inspect reads the metadata of a package.
func (s *Server) Inspect(_ context.Context, request *toolv1.InspectRequest) (*toolv1.InspectResponse, error) {
	loaded, err := s.charts.Load(request.GetPackage())
	if err != nil {
		return &toolv1.InspectResponse{Outcome: &toolv1.InspectResponse_Failure{Failure: failure.Proto(err)}}, nil
	}
	return &toolv1.InspectResponse{Outcome: &toolv1.InspectResponse_Info{Info: loaded.Info()}}, nil
}

// Canonicalize parses and merges values and returns their canonical JSON.
func (s *Server) Canonicalize(_ context.Context, request *toolv1.CanonicalizeRequest) (*toolv1.CanonicalizeResponse, error) {
	canonical, err := canonicalize(request.GetValues())
	if err != nil {
		return &toolv1.CanonicalizeResponse{Outcome: &toolv1.CanonicalizeResponse_Failure{Failure: failure.Proto(err)}}, nil
	}
	return &toolv1.CanonicalizeResponse{Outcome: &toolv1.CanonicalizeResponse_Values{
		Values: &toolv1.CanonicalValues{Json: canonical, Digest: values.Digest(canonical)},
	}}, nil
}

func canonicalize(layers []*toolv1.Values) ([]byte, error) {
	merged, err := values.Merge(layers)
	if err != nil {
		return nil, err
	}
	return values.Canonical(merged)
}

func durationOr(duration *durationpb.Duration, fallback time.Duration) time.Duration {
	if d := duration.AsDuration(); d > 0 {
		return d
	}
	return fallback
}
