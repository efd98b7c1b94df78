// Package server implements the gRPC services of the driver.
package server

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/address"
	"chandler.dev/tools/helm/internal/bundle"
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
	bundles    *bundle.Store
	operations *operation.Set
	requests   *telemetry.RequestCounter
	tracing    *telemetry.Tracing
}

// New returns a server for a driver of the given version, which connects to clusters that the policy allows. tracing may be nil.
func New(
	version string, operations *operation.Set, policy address.Policy, tracing *telemetry.Tracing, log *slog.Logger,
) *Server {
	return &Server{
		version:    version,
		log:        log,
		clusters:   cluster.NewPool(policy),
		charts:     chart.NewStore(),
		bundles:    bundle.NewStore(),
		operations: operations,
		requests:   telemetry.NewRequestCounter(),
		tracing:    tracing,
	}
}

// Formats of the packages that the driver supports, as OCI artifact types.
const (
	formatChart     = "application/vnd.cncf.helm.config.v1+json"
	formatManifests = "application/vnd.chandler.manifests.v1.tar+gzip"
)

// formats are the supported formats. The first one is the format of a package that names none.
var formats = []string{formatChart, formatManifests}

// capabilities are the optional features of the protocol that the driver supports.
var capabilities = []string{"hooks", "wait", "server-side-apply", "take-ownership", "crds", "rollback", "compare", "test",
	"render", "impersonate", "object-rules", "helm-records"}

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
	info, err := s.inspect(request.GetPackage())
	if err != nil {
		return &toolv1.InspectResponse{Outcome: &toolv1.InspectResponse_Failure{Failure: failure.Proto(err)}}, nil
	}
	return &toolv1.InspectResponse{Outcome: &toolv1.InspectResponse_Info{Info: info}}, nil
}

func (s *Server) inspect(pkg *toolv1.Package) (*toolv1.PackageInfo, error) {
	switch format := packageFormat(pkg); format {
	case formatChart:
		loaded, err := s.charts.Load(pkg)
		if err != nil {
			return nil, err
		}
		return loaded.Info(), nil
	case formatManifests:
		loaded, err := s.bundles.Load(pkg)
		if err != nil {
			return nil, err
		}
		return loaded.Info(), nil
	default:
		return nil, unknownFormat(format)
	}
}

// load loads the package of an Apply into its spec.
func (s *Server) load(pkg *toolv1.Package, spec *release.ApplySpec) (err error) {
	switch format := packageFormat(pkg); format {
	case formatChart:
		spec.Chart, err = s.charts.Load(pkg)
		return err
	case formatManifests:
		if spec.Bundle, err = s.bundles.Load(pkg); err != nil {
			return err
		}
		spec.Chart = spec.Bundle.Chart(spec.Values)
		return nil
	default:
		return unknownFormat(format)
	}
}

func packageFormat(pkg *toolv1.Package) string { return cmp.Or(pkg.GetFormat(), formats[0]) }

func unknownFormat(format string) error {
	return failure.New(failure.InvalidPackage, "the Helm driver does not read packages of format %q", format)
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
