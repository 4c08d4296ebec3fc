// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// quotaBytes is more than any run writes: the default of 2 GiB would end a long one.
const quotaBytes = 8 << 30

// serve is an etcd of one member until ctx ends. It prints "ready" once it answers.
func serve(ctx context.Context, o options) error {
	peers, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port: %w", err)
	}
	peer := url.URL{Scheme: "http", Host: peers.Addr().String()}
	if err := peers.Close(); err != nil {
		return fmt.Errorf("find a port: %w", err)
	}
	client := url.URL{Scheme: "https", Host: o.listen}

	c := embed.NewConfig()
	c.Dir = o.dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ClientTLSInfo = o.identity(filepath.Join(o.tls, "server.crt"), filepath.Join(o.tls, "server.key"))
	c.EnableGRPCGateway = false // it would want a client's certificate of its own
	c.QuotaBackendBytes = quotaBytes
	c.LogLevel = "error"
	e, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
		fmt.Println("ready")
	case err := <-e.Err():
		return fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		return nil
	}
	select {
	case err := <-e.Err():
		return fmt.Errorf("etcd ended: %w", err)
	case <-ctx.Done():
		return nil
	}
}
