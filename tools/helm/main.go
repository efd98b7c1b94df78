// chandler-helm is Chandler's Helm driver: it serves the operation protocol and the template service on a unix socket.
//
// It lives as long as its owner: when its standard input ends, it stops all operations and exits at once. SIGTERM lets
// running calls finish.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"google.golang.org/grpc"
	"helm.sh/helm/v4/pkg/kube"

	templatev1 "chandler.dev/tools/helm/gen/chandler/template/v1"
	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/logging"
	"chandler.dev/tools/helm/internal/operation"
	"chandler.dev/tools/helm/internal/release"
	"chandler.dev/tools/helm/internal/server"
)

// version is set when the binary is linked.
var version = "dev"

// maxMessage is the largest message of a call: values and manifests can be large.
const maxMessage = 64 << 20

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "chandler-helm:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", "", "path of the unix socket to serve on")
	memory := flag.Int64("memory-limit", 0, "soft memory limit in bytes; 0: none")
	level := slog.LevelInfo
	flag.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
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
	return serve(*socket, logging.New(os.Stderr, level))
}

func serve(socket string, log *slog.Logger) error {
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
	service := server.New(version, operations, log)
	options := append(server.Recovery(log), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	grpcServer := grpc.NewServer(options...)
	toolv1.RegisterPackageToolServer(grpcServer, service)
	templatev1.RegisterTemplateServiceServer(grpcServer, service)

	go exitWithOwner(operations, log)
	go drainOnTerminate(grpcServer, log)
	log.Info("serving", "version", version)
	return grpcServer.Serve(listener)
}

// exitWithOwner ends the process when its standard input ends: whoever started it is gone.
func exitWithOwner(operations *operation.Set, log *slog.Logger) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	operations.StopAll()
	log.Info("the owner is gone, exiting", "operations", operations.Running())
	os.Exit(0)
}

func drainOnTerminate(grpcServer *grpc.Server, log *slog.Logger) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	log.Info("draining")
	grpcServer.GracefulStop()
}
