// chandler-helm is Chandler's Helm driver: it serves the operation protocol and the template service on a unix socket.
//
// It lives as long as its owner: when its standard input ends, it stops all operations and exits at once. SIGTERM lets
// running calls finish.
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
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"helm.sh/helm/v4/pkg/kube"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/logging"
	"chandler.dev/tools/helm/internal/operation"
	"chandler.dev/tools/helm/internal/release"
	"chandler.dev/tools/helm/internal/server"
	"chandler.dev/tools/helm/internal/telemetry"
)

// version is set when the binary is linked.
var version = "dev"

// maxMessage is the largest message of a call: values and manifests can be large.
const maxMessage = 64 << 20

// parting is how long the last spans may take to leave when the process ends.
const parting = time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "chandler-helm:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", "", "path of the unix socket to serve on")
	memory := flag.Int64("memory-limit", 0, "soft memory limit in bytes; 0: none")
	showVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *showVersion {
		fmt.Println(version)
		return nil
	}
	if *socket == "" {
		return errors.New("--socket is missing")
	}
	if *memory > 0 {
		debug.SetMemoryLimit(*memory)
	}
	var level slog.LevelVar
	return serve(*socket, logging.New(os.Stderr, &level), &level)
}

func serve(socket string, log *slog.Logger, level *slog.LevelVar) error {
	kube.ManagedFieldsManager = release.FieldManager
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

	operations := operation.NewSet()
	tracing, err := telemetry.StartTracing(context.Background(), version)
	if err != nil {
		log.Warn("there are no traces", "error", err.Error())
	}
	telemetry.Errors(func(err error) { log.Warn("traces are lost", "error", err.Error()) })
	service := server.New(version, operations, tracing, log)
	options := append(tracing.Interceptors(), server.Recovery(log)...)
	options = append(options, grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	grpcServer := grpc.NewServer(options...)
	toolv1.RegisterPackageToolServer(grpcServer, service)
	templatev1.RegisterTemplateServiceServer(grpcServer, service)

	go followOwner(operations, tracing, log, level)
	go drainOnTerminate(grpcServer, log)
	log.Info("serving", "version", version)
	return grpcServer.Serve(listener)
}

// followOwner does what the lines on standard input say, and ends the process with them: whoever started it is gone.
func followOwner(operations *operation.Set, tracing *telemetry.Tracing, log *slog.Logger, level *slog.LevelVar) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		obey(lines.Text(), log, level)
	}
	operations.StopAll()
	log.Info("the owner is gone, exiting", "operations", operations.Running())
	tracing.End(parting)
	os.Exit(0)
}

// obey does what a line says, if it is known.
func obey(line string, log *slog.Logger, level *slog.LevelVar) {
	if wanted, ok := strings.CutPrefix(line, "log-level "); ok {
		if err := level.UnmarshalText([]byte(wanted)); err != nil {
			log.Warn("the owner wants an unknown log level", "error", err.Error())
		}
	}
}

func drainOnTerminate(grpcServer *grpc.Server, log *slog.Logger) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	log.Info("draining")
	grpcServer.GracefulStop()
}
