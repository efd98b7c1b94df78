package server

import (
	"google.golang.org/grpc"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/release"
)

// Compare compares the objects of a release with its newest revision.
func (s *Server) Compare(request *toolv1.CompareRequest, stream grpc.ServerStreamingServer[toolv1.OperationEvent]) error {
	comparison := &toolv1.Comparison{}
	call := newCall("compare", request, request.GetTimeout(), stream)
	result := s.run(stream.Context(), call, func(opened *release.Release) (_ *toolv1.ReleaseState, err error) {
		comparison.Objects, err = opened.Compare(release.CompareSpec{
			Revision:       int(request.GetRevision()),
			Objects:        request.GetObjects(),
			Correct:        request.GetCorrect(),
			Ignore:         request.GetIgnore(),
			FieldConflicts: request.GetFieldConflicts(),
		})
		return nil, err
	})
	result.comparison = comparison
	return stream.Send(result.event())
}

// Test runs the tests of a release.
func (s *Server) Test(request *toolv1.TestRequest, stream grpc.ServerStreamingServer[toolv1.OperationEvent]) error {
	report := &toolv1.TestReport{}
	call := newCall("test", request, request.GetTimeout(), stream)
	result := s.run(stream.Context(), call, func(opened *release.Release) (_ *toolv1.ReleaseState, err error) {
		report.Tests, err = opened.Test(release.TestSpec{
			Revision: int(request.GetRevision()),
			Logs:     request.GetLogs(),
		})
		return nil, err
	})
	result.tests = report
	return stream.Send(result.event())
}
