package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
	"chandler.dev/tools/helm/internal/build"
	"chandler.dev/tools/helm/internal/template"
)

// TemplateServer implements TemplateService.
type TemplateServer struct {
	templatev1.UnimplementedTemplateServiceServer

	builder *build.Builder
}

// NewTemplateServer returns a server that runs builds with builder.
func NewTemplateServer(builder *build.Builder) *TemplateServer {
	return &TemplateServer{builder: builder}
}

// Render renders a values template.
func (*TemplateServer) Render(ctx context.Context, request *templatev1.RenderRequest) (*templatev1.RenderResponse, error) {
	return template.Render(ctx, request), nil
}

// Build builds the objects of a folder. If that takes too long, the status is DeadlineExceeded: the build may still run.
func (s *TemplateServer) Build(ctx context.Context, request *templatev1.BuildRequest) (*templatev1.BuildResponse, error) {
	response, err := s.builder.Build(ctx, request)
	if err != nil {
		return nil, status.Error(codes.DeadlineExceeded, err.Error())
	}
	return response, nil
}
