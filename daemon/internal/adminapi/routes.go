// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/op"
)

type handler = func(http.ResponseWriter, *http.Request) error

// by is who answers a route.
type by int

const (
	// byDaemon: what it changes is refused while the host is fenced. The registry
	// may ask for it by a task.
	byDaemon by = iota
	// byDaemonAsStream is the same without end, which no task can carry.
	byDaemonAsStream
	// byRegistry: passed on. As a task it would come back.
	byRegistry
)

// line is a route and who answers it.
type line struct {
	httpjson.Route
	by by
}

// Routes is the API: every path, what it asks of the caller, and who answers.
func (s *Server) Routes() []httpjson.Route {
	lines := s.lines()
	routes := make([]httpjson.Route, len(lines))
	for i := range lines {
		routes[i] = lines[i].Route
		if lines[i].by != byRegistry && routes[i].Access != httpjson.Read {
			routes[i].Handler = s.admitted(routes[i].Handler)
		}
	}
	return routes
}

// admitted refuses what would begin something on a host that is fenced, and says
// why to those whose operation was halted by that while they waited for it.
func (s *Server) admitted(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.Uplink.Admit(); err != nil {
			return err
		}
		err := next(w, r)
		if errors.Is(err, op.ErrStopped) {
			return cmp.Or(s.Uplink.Admit(), err)
		}
		return err
	}
}

func (s *Server) lines() []line {
	lines := append(s.ownLines(), s.volumeLines()...)
	lines = append(lines, s.instanceLines()...)
	lines = append(lines, s.migrationLines()...)
	lines = append(lines, s.pauseAllLines()...)
	return append(lines, s.siteLines()...)
}

func get(path, summary string, h handler) line {
	return line{Route: httpjson.Route{Method: http.MethodGet, Path: path, Access: httpjson.Read, Summary: summary, Handler: h}}
}

func change(method, path, summary string, h handler) line {
	return line{Route: httpjson.Route{Method: method, Path: path, Access: httpjson.Operate, Summary: summary, Handler: h}}
}

func post(path, summary string, h handler) line { return change(http.MethodPost, path, summary, h) }

func (l line) answeredBy(who by) line {
	l.by = who
	return l
}

func (l line) query(names ...string) line {
	l.Query = names
	return l
}

func (l line) in(body any) line {
	l.In = body
	return l
}

func (l line) access(a httpjson.Access) line {
	l.Access = a
	return l
}

func (l line) lines(each any) line {
	l.Lines = each
	return l.answeredBy(byDaemonAsStream)
}

func (l line) out(name string, value any) line {
	l.Out = append(l.Out, httpjson.Noun{Name: name, Value: value})
	return l
}

// remembered are the nouns beside the answer to a read that the daemon may give
// while the registry is away.
func (l line) remembered() line {
	return l.out("stale", false).out("age_seconds", 0.0).answeredBy(byRegistry)
}

func (s *Server) ownLines() []line {
	return []line{
		get("/v1/status", "how this daemon and what it leans on are", s.status).out("status", api.Status{}),
		get("/v1/doctor", "what on this host would stop a migration", s.doctor).out("checks", []api.Check{}),
		get("/v1/version", "the version of this daemon", s.version).out("version", map[string]string{}),
		get("/v1/openapi.json", "this API as an OpenAPI document", s.openAPI),
		get("/v1/ops", "list the operations of this host that are not finished", s.listOps).out("ops", []api.Op{}),
		get("/v1/ops/{op}", "show an operation", s.showOp).out("op", api.Op{}),
		get("/v1/ops/{op}/events", "follow an operation (NDJSON)", s.watchOp).query("since").lines(api.Event{}),
	}
}

func (s *Server) volumeLines() []line {
	return []line{
		post("/v1/volumes", "create a volume", s.createVolume).in(api.VolumeCreate{}).out("volume", api.Volume{}),
		post("/v1/volumes:adopt", "register an image that exists as a volume", s.adoptVolume).in(api.VolumeAdopt{}).out("volume", api.Volume{}),
		change(http.MethodDelete, "/v1/volumes/{volume}", "delete a volume and its bytes; force=1 also one whose bytes may be half there", s.deleteVolume).
			query("force").out("volume", api.VolumeRegister{}),
		post("/v1/volumes/{volume}/resize", "make a volume larger, also under a running guest", s.resizeVolume).in(api.VolumeResize{}).out("volume", api.Volume{}),
		post("/v1/volumes/{volume}/forget", "let go of a volume that is not attached; its image stays as it is", s.forgetVolume).in(api.VolumeForget{}).out("volume", api.Volume{}),
		get("/v1/volumes/{volume}/which", "say which copy of a volume is the good one", s.which).out("which", api.Which{}),
		post("/v1/volumes/{volume}/migrate", "move a volume: start, copy and complete in one", s.migrateVolume).
			in(api.MigrationTarget{}).out("op", api.Op{}).out("migration", api.Migration{}),
		post("/v1/volumes/{volume}/attach", "attach a volume to an instance", s.attachVolume).
			in(api.VolumeAttach{}).out("op", api.Op{}).out("attachment", api.Attachment{}),
		post("/v1/volumes/{volume}/detach", "detach a volume from an instance", s.detachVolume).
			in(api.VolumeDetach{}).out("op", api.Op{}).out("attachment", api.Attachment{}),
		change(http.MethodDelete, "/v1/attachments/{attachment}", "end one attachment; force=1 whatever its state, unless the guest has the disk", s.deleteAttachment).
			query("force").out("op", api.Op{}).out("attachment", api.Attachment{}),
	}
}

func (s *Server) instanceLines() []line {
	const instance = "/v1/instances/{instance}"
	begun := func(l line) line { return l.out("op", api.Op{}).out("instance", api.Instance{}) }
	return []line{
		post("/v1/instances:adopt", "take over the disks of domains that exist", s.adoptInstance).
			in(api.InstanceAdopt{}).out("instance", api.Instance{}).out("instances", []api.Instance{}).out("already_adopted", []string{}),
		change(http.MethodDelete, instance, "forget an instance; its domain and images stay; with_definition=1 also one that no host has", s.forgetInstance).query("with_definition").out("instance", api.Instance{}),
		begun(post(instance+"/start", "start an instance", s.power("start", nil, s.Instances.BeginStart))),
		begun(post(instance+"/stop", "ask the guest to shut down, or with force cut its power", s.stopInstance).in(api.InstanceStop{})),
		begun(post(instance+"/reboot", "ask the guest to reboot", s.power("reboot", nil, s.Instances.BeginReboot))),
		begun(post(instance+"/pause", "make an instance stand still", s.power("pause", nil, s.Instances.BeginPause))),
		begun(post(instance+"/unpause", "let a paused instance run", s.power("unpause", nil, s.Instances.BeginUnpause))),
		begun(post(instance+"/shelve", "put an instance away, with what its host knows of it", s.shelveInstance).in(api.InstanceShelve{})),
		begun(post(instance+"/unshelve", "bring a shelved instance back and start it", s.unshelveInstance).in(api.InstanceUnshelve{})),
	}
}

func (s *Server) migrationLines() []line {
	begun := func(l line) line { return l.out("op", api.Op{}).out("migration", api.Migration{}) }
	const attachment, migration = "/v1/attachments/{attachment}/migration:", "/v1/migrations/{migration}"
	return []line{
		begun(post(attachment+"start", "freeze the volume under an overlay", s.startMigration).in(api.MigrationTarget{})),
		begun(post(attachment+"copy", "copy src to dst", s.byAttachment(s.Migrations.Copy))),
		begun(post(attachment+"complete", "put the instance onto dst", s.completeByAttachment).in(api.MigrationComplete{})),
		begun(post(attachment+"cancel", "bring the instance back to src", s.byAttachment(s.Migrations.Cancel))),

		get("/v1/migrations", "list the migrations of this host", s.listMigrations).query("all").out("migrations", []api.Migration{}),
		get(migration, "show a migration", s.led(s.showMigration)).out("migration", api.Migration{}),
		change(http.MethodPatch, migration, "change a migration while it runs", s.updateMigration).in(api.MigrationUpdate{}).out("migration", api.Migration{}),
		get(migration+"/events", "follow a migration (NDJSON)", s.led(s.watchMigration)).query("since").lines(api.Event{}),
		begun(post(migration+"/copy", "copy src to dst", s.byMigration(s.Migrations.Copy))),
		begun(post(migration+"/complete", "end a migration at dst", s.led(s.byMigration(s.Migrations.Complete)))),
		begun(post(migration+"/cancel", "end a migration at src", s.led(s.byMigration(s.Migrations.Cancel)))),
	}
}

// siteLines are what the registry answers: it says by itself what this host may
// see and do of it.
func (s *Server) siteLines() []line {
	read := func(path, summary string, recall recall) line { return get(path, summary, s.recalled(recall)) }
	site := func(l line) line { return l.answeredBy(byRegistry) }
	lines := []line{
		read("/v1/hosts", "list the hosts", all("hosts", hosts)).out("hosts", []api.Host{}).remembered(),
		read("/v1/hosts/{host}", "show a host", one("host", hosts, hostCalled)).out("host", api.Host{}).remembered(),
		get("/v1/pools", "list the storage pools", s.fresh(s.recalled(all("pools", pools)))).out("pools", []api.Pool{}).remembered(),
		get("/v1/pools/{pool}", "show a storage pool", s.fresh(s.recalled(recallPool))).query("host").out("pool", api.Pool{}).remembered(),
		read("/v1/types", "list the volume types", all("types", types)).out("types", []api.VolumeType{}).remembered(),
		read("/v1/types/{type}", "show a volume type", one("type", types, typeCalled)).out("type", api.VolumeType{}).remembered(),
		read("/v1/policies", "list the policies", all("policies", policies)).out("policies", []api.Policy{}).remembered(),
		read("/v1/policies/{policy}", "show a policy", one("policy", policies, policyCalled)).out("policy", api.Policy{}).remembered(),
		read("/v1/volumes", "list the volumes", all("volumes", volumes)).out("volumes", []api.Volume{}).remembered(),
		read("/v1/volumes/{volume}", "show a volume", one("volume", volumes, volumeCalled)).out("volume", api.Volume{}).remembered(),
		read("/v1/attachments", "list the attachments", recallAttachments).query("volume", "instance").out("attachments", []api.Attachment{}).remembered(),
		read("/v1/attachments/{attachment}", "show an attachment", one("attachment", attachments, attachmentCalled)).out("attachment", api.Attachment{}).remembered(),
		get("/v1/instances", "list the instances", s.fresh(s.recalled(all("instances", instances)))).out("instances", []api.Instance{}).remembered(),
		get("/v1/instances/{instance}", "show an instance", s.fresh(s.recalled(one("instance", instances, instanceCalled)))).out("instance", api.Instance{}).remembered(),

		post("/v1/instances/{instance}/lock", "keep everybody from changing an instance", s.proxied).in(api.InstanceLock{}).out("instance", api.Instance{}),
		post("/v1/instances/{instance}/unlock", "let an instance be changed again", s.proxied).out("instance", api.Instance{}),
		post("/v1/hosts/{host}/fence", "say that a host cannot touch any volume any more", s.proxied).in(api.HostFence{}).out("host", api.Host{}).access(httpjson.Fence),
		post("/v1/types", "create a volume type", s.proxied).in(api.VolumeTypeCreate{}).out("type", api.VolumeType{}),
		change(http.MethodPatch, "/v1/types/{type}", "change a volume type", s.proxied).in(api.VolumeTypeUpdate{}).out("type", api.VolumeType{}),
		change(http.MethodDelete, "/v1/types/{type}", "delete a volume type", s.proxied),
		change(http.MethodPut, "/v1/policies/{policy}", "turn a policy on or off", s.proxied).in(api.PolicyUpdate{}).out("policy", api.Policy{}),
		change(http.MethodPatch, "/v1/volumes/{volume}", "change a volume", s.proxied).in(api.VolumeUpdate{}).out("volume", api.Volume{}),
		post("/v1/volumes/{volume}/retype", "give a volume another type, moving it if that is asked for", s.proxied).in(api.VolumeRetype{}).out("volume", api.Volume{}),
		post("/v1/migrations/{migration}/abandon", "end a migration of a host that is fenced", s.proxied).in(api.MigrationAbandon{}).out("migration", api.Migration{}).access(httpjson.Fence),
		post("/v1/pools/{pool}/drain", "move every volume of a pool, on every host, to another", s.proxied).in(api.PoolDrain{}).out("drain", api.Drain{}),
		get("/v1/drains", "list the drains", s.proxied).out("drains", []api.Drain{}),
		get("/v1/drains/{drain}", "show a drain", s.proxied).out("drain", api.Drain{}),
		get("/v1/drains/{drain}/events", "follow a drain (NDJSON)", s.proxied).query("since").lines(api.Event{}),
		post("/v1/drains/{drain}/pause", "begin no more moves of a drain", s.proxied).out("drain", api.Drain{}),
		post("/v1/drains/{drain}/resume", "go on with a drain", s.proxied).out("drain", api.Drain{}),
		post("/v1/drains/{drain}/stop", "end a drain; what moves is let end", s.proxied).out("drain", api.Drain{}),
		get("/v1/events", "the audit trail, with follow=1 as a stream", s.proxied).query("since", "follow").out("events", []api.Event{}),
	}
	for i := range lines {
		lines[i] = site(lines[i])
	}
	return lines
}
