// Command capi-client does what only Go code of Cluster API and Kubernetes does: it replaces the kubeconfig of a Cluster as the
// kubeadm control plane provider does, and it forwards a port of a Pod as that provider and kubectl do.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	usage = "usage: capi-client regenerate KUBECONFIG NAMESPACE CLUSTER\n" +
		"       capi-client port-forward KUBECONFIG NAMESPACE POD PORT"
	limit = 30 * time.Second
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 4 {
		return errors.New(usage)
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[1])
	if err != nil {
		return err
	}
	switch {
	case args[0] == "regenerate" && len(args) == 4:
		return regenerate(config, args[2], args[3])
	case args[0] == "port-forward" && len(args) == 5:
		return forward(config, args[2], args[3], args[4])
	}
	return errors.New(usage)
}

// regenerate replaces the kubeconfig in the Secret of a Cluster, and prints what it has written.
func regenerate(config *rest.Config, namespace, cluster string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: cluster + "-kubeconfig"}
	if err := c.Get(ctx, key, secret); err != nil {
		return err
	}
	if err := kubeconfig.RegenerateSecret(ctx, c, secret); err != nil {
		return err
	}
	_, err = os.Stdout.Write(secret.Data["value"])
	return err
}

// forward sends a line through a forwarded port, once for each protocol, and prints the answers.
func forward(config *rest.Config, namespace, pod, port string) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	url := clientset.CoreV1().RESTClient().Post().
		Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return err
	}
	websocket, err := portforward.NewSPDYOverWebsocketDialer(url, config)
	if err != nil {
		return err
	}
	for _, protocol := range []struct {
		name   string
		dialer httpstream.Dialer
	}{
		{"spdy", spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)},
		{"websocket", websocket},
	} {
		answer, err := exchange(protocol.dialer, port, protocol.name)
		if err != nil {
			return fmt.Errorf("%s: %w", protocol.name, err)
		}
		fmt.Printf("%s: %s", protocol.name, answer)
	}
	return nil
}

// exchange forwards a local port, sends a line to it and returns the line that comes back.
func exchange(dialer httpstream.Dialer, port, line string) (string, error) {
	stop, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	defer close(stop)
	forwarder, err := portforward.NewOnAddresses(
		dialer, []string{"127.0.0.1"}, []string{"0:" + port}, stop, ready, io.Discard, os.Stderr)
	if err != nil {
		return "", err
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case err := <-failed:
		return "", fmt.Errorf("the port is not forwarded: %w", err)
	case <-time.After(limit):
		return "", errors.New("the port is not forwarded in time")
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	connection, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local), limit)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(connection, line); err != nil {
		return "", err
	}
	return bufio.NewReader(connection).ReadString('\n')
}
