package server

import (
	"context"
	"time"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/redact"
	"chandler.dev/tools/helm/internal/release"
	"chandler.dev/tools/helm/internal/values"
)

// renderTimeout is how long rendering may take, including the reads of templates.
const renderTimeout = 2 * time.Minute

// Render renders the objects that an Apply would apply.
func (s *Server) Render(ctx context.Context, request *toolv1.RenderRequest) (*toolv1.RenderResponse, error) {
	var (
		secrets  []string
		rendered *toolv1.RenderedRelease
	)
	result := s.run(ctx, call{
		kind:     "render",
		target:   request.GetTarget(),
		release:  request.GetRelease(),
		timeout:  renderTimeout,
		readOnly: true,
	}, func(opened *release.Release) (*toolv1.ReleaseState, error) {
		merged, err := values.Merge(request.GetValues())
		if err != nil {
			return nil, err
		}
		secrets = redact.Strings(merged)
		spec := release.ApplySpec{Values: merged, Options: request.GetOptions()}
		if request.GetPackage() != nil {
			if err := s.load(request.GetPackage(), &spec); err != nil {
				return nil, err
			}
		}
		rendered, err = opened.Render(spec)
		return rendered.GetNewest(), err
	})
	if result.err != nil {
		return &toolv1.RenderResponse{Outcome: &toolv1.RenderResponse_Failure{
			Failure: failure.Proto(result.err, secrets...),
		}}, nil
	}
	return &toolv1.RenderResponse{Outcome: &toolv1.RenderResponse_Rendered{Rendered: rendered}}, nil
}
