// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/workflow"
)

func copyRequest(p *workflow.Pause) request {
	m := p.Migration
	return request{
		host: p.CopyHost, key: key(m.ID, "copy", "", p.Attempt), path: routes.CopySaved.PathOf(m.ID),
		body: api.CopySaved{
			MigrationID: m.ID, VolumeID: m.VolumeID, VolumeName: m.VolumeName, Src: m.Src, Dst: m.Dst,
			CopyOptions: p.Request.CopyOptions,
		},
	}
}

func dropRequest(p *workflow.Pause) request {
	m := p.Migration
	verb, end := "drop", m.Dst
	if p.DropEnd == api.DropSrc {
		verb, end = "delete", m.Src
	}
	return request{
		host: p.CopyHost, key: key(m.ID, verb, "", p.Attempt), path: routes.DropSaved.PathOf(m.ID),
		body: api.DropSaved{MigrationID: m.ID, VolumeID: m.VolumeID, Drop: p.DropEnd, Location: end},
	}
}

func checkRequest(p *workflow.Pause, g workflow.PauseInstance) request {
	m := p.Migration
	return request{
		host: g.Host, key: key(m.ID, "check", g.ID, g.SaveAttempt), path: routes.CheckSave.PathOf(g.ID),
		body: api.InstanceSuspend{MigrationID: m.ID, VolumeID: m.VolumeID},
	}
}

func suspendRequest(p *workflow.Pause, g workflow.PauseInstance) request {
	m := p.Migration
	return request{
		host: g.Host, key: key(m.ID, "suspend", g.ID, g.SaveAttempt), path: routes.SuspendInstance.PathOf(g.ID),
		body: api.InstanceSuspend{MigrationID: m.ID, VolumeID: m.VolumeID},
	}
}

func saveRequest(p *workflow.Pause, g workflow.PauseInstance) request {
	m := p.Migration
	return request{
		host: g.Host, key: key(m.ID, "save", g.ID, g.SaveAttempt), path: routes.SaveInstance.PathOf(g.ID),
		body: api.InstanceSave{MigrationID: m.ID, VolumeID: m.VolumeID},
	}
}

func checkCopyRequest(p *workflow.Pause) request {
	r := copyRequest(p)
	r.key, r.path = key(p.Migration.ID, "check-copy", "", p.Attempt), routes.CheckCopy.PathOf(p.Migration.ID)
	return r
}

// placeOf is where the volume is: at dst after the commit point, and at src without it.
func placeOf(p *workflow.Pause) (verb string, at api.Location) {
	if p.Phase == workflow.PauseRestoring || p.Migration.State == api.MigrationCompleted {
		return "restore", p.Migration.Dst
	}
	return "back", p.Migration.Src
}

func restoreRequest(p *workflow.Pause, g workflow.PauseInstance) request {
	m := p.Migration
	verb, at := placeOf(p)
	if g.Discard {
		verb = "discard"
	}
	return request{
		host: g.Host, key: key(m.ID, verb, g.ID, g.Attempt), path: routes.RestoreInstance.PathOf(g.ID),
		body: api.InstanceRestore{MigrationID: m.ID, VolumeID: m.VolumeID, Location: at, Paused: true, DiscardMemory: g.Discard},
	}
}

func resumeRequest(p *workflow.Pause, g workflow.PauseInstance) request {
	m := p.Migration
	_, at := placeOf(p)
	return request{
		host: g.Host, key: key(m.ID, "resume", g.ID, g.Attempt), path: routes.ResumeInstance.PathOf(g.ID),
		body: api.InstanceResume{MigrationID: m.ID, VolumeID: m.VolumeID, Location: at},
	}
}
