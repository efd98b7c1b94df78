package server

import (
	"context"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
	"chandler.dev/tools/helm/internal/template"
)

// TemplateServer implements TemplateService.
type TemplateServer struct {
	templatev1.UnimplementedTemplateServiceServer
}

// Render renders a values template.
func (TemplateServer) Render(ctx context.Context, request *templatev1.RenderRequest) (*templatev1.RenderResponse, error) {
	return template.Render(ctx, request), nil
}
