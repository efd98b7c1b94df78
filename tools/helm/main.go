// chandler-helm is Chandler's Helm driver. It serves either the package tool protocol or the template service on a unix
// socket.
//
// When its standard input is closed, it stops all operations and exits immediately. On SIGTERM it finishes running
// calls before it exits.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"helm.sh/helm/v4/pkg/kube"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/address"
	"chandler.dev/tools/helm/internal/build"
	"chandler.dev/tools/helm/internal/cpulimit"
	"chandler.dev/tools/helm/internal/kustomize"
	"chandler.dev/tools/helm/internal/logging"
	"chandler.dev/tools/helm/internal/operation"
	"chandler.dev/tools/helm/internal/release"
	"chandler.dev/tools/helm/internal/server"
	"chandler.dev/tools/helm/internal/telemetry"
)

// version is the version of the driver, set by the linker.
var version = "dev"

const (
	// maxMessage is the maximum size of a gRPC message in bytes. Values and manifests can be large.
	maxMessage = 64 << 20
	// traceFlushTimeout is how long exporting the last spans may take when the process exits.
	traceFlushTimeout = time.Second
	// cpuSecondsVariable is the environment variable with the CPU time that one call may use.
	cpuSecondsVariable = "CHANDLER_CPU_SECONDS"
)

// Values of the flag --service.
const (
	serviceTool     = "tool"
	serviceTemplate = "template"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "chandler-helm:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", "", "path of the unix socket to serve on")
	service := flag.String("service", serviceTool, "service to serve: tool (PackageTool) or template (TemplateService)")
	memory := flag.Int64("memory-limit", 0, "soft memory limit in bytes; 0 means no limit")
	showVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *showVersion {
		fmt.Println(version)
		return nil
	}
	if *socket == "" {
		return errors.New("--socket is required")
	}
	if *memory > 0 {
		debug.SetMemoryLimit(*memory)
	}
	var level slog.LevelVar
	return serve(*socket, *service, logging.New(os.Stderr, &level), &level)
}

func serve(socket, service string, log *slog.Logger, level *slog.LevelVar) error {
	kube.ManagedFieldsManager = release.FieldManager
	operations := operation.NewSet()
	limit, err := cpuLimit(log)
	if err != nil {
		return err
	}
	operations.CPU = limit
	policy, err := address.FromEnvironment()
	if err != nil {
		return err
	}
	tracing, err := telemetry.StartTracing(context.Background(), version)
	if err != nil {
		log.Warn("tracing is disabled", "error", err.Error())
	}
	telemetry.SetErrorHandler(func(err error) { log.Warn("exporting traces failed", "error", err.Error()) })
	options := append(tracing.ServerOptions(), server.Recovery(log)...)
	options = append(options, server.LimitCPU(limit))
	options = append(options, grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	grpcServer := grpc.NewServer(options...)
	if err := register(grpcServer, service, server.New(version, operations, policy, tracing, log), limit, log); err != nil {
		return err
	}
	if service == serviceTemplate {
		if err := kustomize.Isolate(); err != nil {
			return err
		}
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}

	// Before the first call is answered: without a handler, SIGTERM kills the process.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go readCommands(operations, tracing, log, level)
	go drainOnTerminate(signals, grpcServer, log)
	log.Info("serving", "service", service, "version", version)
	return grpcServer.Serve(listener)
}

// cpuLimit returns the limit of the CPU time of one call. The process exits when a call exceeds it.
func cpuLimit(log *slog.Logger) (*cpulimit.Limit, error) {
	budget := cpulimit.DefaultBudget
	if text := os.Getenv(cpuSecondsVariable); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 16)
		if err != nil || seconds == 0 {
			return nil, fmt.Errorf("%s must be a number of seconds, not %q", cpuSecondsVariable, text)
		}
		budget = time.Duration(seconds) * time.Second
	}
	return cpulimit.New(budget, func() {
		log.Error("a call used more CPU time than it may, exiting", "limit", budget.String())
		os.Exit(cpulimit.ExitCode)
	}), nil
}

// register registers the service that the flag --service selects.
func register(
	registrar grpc.ServiceRegistrar, service string, tool *server.Server, limit *cpulimit.Limit, log *slog.Logger,
) error {
	switch service {
	case serviceTool:
		toolv1.RegisterPackageToolServer(registrar, tool)
	case serviceTemplate:
		builder := build.NewBuilder(log, func() {
			log.Error("a build does not end, exiting")
			os.Exit(1)
		})
		builder.CPU = limit
		templatev1.RegisterTemplateServiceServer(registrar, server.NewTemplateServer(builder))
	default:
		return fmt.Errorf("--service must be %s or %s, not %q", serviceTool, serviceTemplate, service)
	}
	return nil
}

// readCommands executes the commands on standard input, one per line. When standard input is closed, the parent process
// has ended, and readCommands exits the process.
func readCommands(operations *operation.Set, tracing *telemetry.Tracing, log *slog.Logger, level *slog.LevelVar) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		execute(lines.Text(), operations.Lease, log, level)
	}
	operations.StopAll()
	log.Info("standard input closed, exiting", "operations", operations.Running())
	tracing.Shutdown(traceFlushTimeout)
	os.Exit(0)
}

// execute executes one command and ignores unknown ones. The commands are "log-level LEVEL" and "lease-until NANOSECONDS".
func execute(command string, lease *operation.Lease, log *slog.Logger, level *slog.LevelVar) {
	switch name, argument, _ := strings.Cut(command, " "); name {
	case "log-level":
		if err := level.UnmarshalText([]byte(argument)); err != nil {
			log.Warn("unknown log level", "error", err.Error())
		}
	case "lease-until":
		until, err := strconv.ParseInt(argument, 10, 64)
		if err != nil {
			log.Warn("invalid time of the Lease", "error", err.Error())
			return
		}
		lease.SetUntil(time.Duration(until))
	}
}

func drainOnTerminate(signals <-chan os.Signal, grpcServer *grpc.Server, log *slog.Logger) {
	<-signals
	log.Info("draining")
	grpcServer.GracefulStop()
}
