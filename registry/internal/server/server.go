// SPDX-License-Identifier: Apache-2.0

// Package server is the registry's HTTP API: a handler for each of its routes (package routes),
// over the store, and over the relay if a host must answer. The store decides permissions.
package server

import (
	"time"

	"github.com/volferry/volferry/registry/internal/relay"
)

// Server answers the API's requests.
type Server struct {
	Config
	limits limits

	forward  *forwarder
	targets  *targets
	views    *views
	refusals *refusals

	status      *statusAPI
	hosts       *hostAPI
	drains      *drainAPI
	volumes     *volumeAPI
	retypes     *retypeAPI
	estimates   *estimateAPI
	attachments *attachmentAPI
	instances   *instanceAPI
	migrations  *migrationAPI
	pauses      *pauseAPI
	ops         *opAPI
	events      *eventAPI
}

// New returns a server for an open store.
func New(c Config) *Server {
	db := c.Store
	s := &Server{
		Config:  c,
		forward: &forwarder{c.Relay, db.Tasks},
		targets: &targets{
			placement: relay.PlacementOf(db.Store, c.Relay.Present), volumes: db.Volumes, attachments: db.Attachments, instances: db.Instances,
			types: db.Types, tasks: db.Tasks,
		},
		views:    &views{migrations: db.Migrations, progress: db.Progress, pauses: db.Pauses, relay: c.Relay},
		refusals: &refusals{db.Trail, c.Log},
		events:   &eventAPI{db.Trail},
	}
	s.bind(&streams{db.Progress, db.Trail})
	return s
}

func (s *Server) bind(streams *streams) {
	db := s.Store
	s.status = &statusAPI{Config: &s.Config, views: s.views, since: time.Now().UTC()}
	s.hosts = &hostAPI{hosts: db.Hosts, reports: db.Reports, pools: db.Pools, relay: s.Relay, refusals: s.refusals}
	s.drains = &drainAPI{drains: db.Drains, hosts: db.Hosts, relay: s.Relay, views: s.views, streams: streams}
	s.volumes = &volumeAPI{
		volumes: db.Volumes, migrations: db.Migrations, forward: s.forward, targets: s.targets,
		moves: relay.SharedMoves{Hosts: db.Hosts, Pauses: db.Pauses, LiveMoves: db.LiveMoves, Relay: s.Relay},
	}
	s.retypes = &retypeAPI{retypes: db.Retypes, forward: s.forward, targets: s.targets, relay: s.Relay}
	s.estimates = &estimateAPI{volumes: db.Volumes, pools: db.Pools, rates: db.Rates, targets: s.targets, relay: s.Relay}
	s.attachments = &attachmentAPI{
		attachments: db.Attachments, hosts: db.Hosts, shelf: db.Shelf, forward: s.forward, targets: s.targets, refusals: s.refusals,
	}
	s.instances = &instanceAPI{instances: db.Instances, shelf: db.Shelf, hosts: db.Hosts, forward: s.forward, targets: s.targets}
	s.migrations = &migrationAPI{
		migrations: db.Migrations, pauses: db.Pauses, hosts: db.Hosts, views: s.views, streams: streams, relay: s.Relay,
	}
	s.pauses = &pauseAPI{migrations: db.Migrations, pauses: db.Pauses, hosts: db.Hosts, relay: s.Relay, log: s.Log}
	s.ops = &opAPI{targets: s.targets, relay: s.Relay, views: s.views, streams: streams}
}
