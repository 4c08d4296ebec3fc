// SPDX-License-Identifier: Apache-2.0

package adminapi

func (s *Server) passing() *passing {
	return &passing{registry: s.Registry, proxy: s.RegistryProxy, check: s.CheckRegistry, uplink: s.Uplink, runner: s.Runner, hostName: s.HostName}
}

func (s *Server) ops() *opAPI {
	return &opAPI{runner: s.Runner, migrations: s.Migrations, waits: &s.opWaits}
}

func (s *Server) migrations() *migrationAPI {
	return &migrationAPI{moves: s.Migrations, registry: s.Registry, uplink: s.Uplink, passing: s.passing()}
}

func (s *Server) instances() *instanceAPI {
	return &instanceAPI{
		instances: s.Instances, adopter: s.Adopter, moves: s.Migrations, registry: s.Registry, uplink: s.Uplink, audit: s.Audit,
		passing: s.passing(), ops: s.ops(), log: s.Log, hostID: s.HostID, hostName: s.HostName,
	}
}

func (s *Server) status() *statusAPI { return &statusAPI{Deps: s.Deps, migrations: s.migrations()} }
