// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// The verbs in the ids of the calls that make dst on the copy host. verbMake is for live moves.
const (
	verbCopy = "copy"
	verbMake = "make"
)

func copyRequest(p *workflow.Pause) hostop.Request {
	m := p.Migration
	return hostop.Request{
		HostID: p.CopyHost.ID, HostName: p.CopyHost.Name, Key: hostop.Key(m.ID, verbCopy, p.Attempt), Path: routes.CopySaved.PathOf(m.ID),
		Body: api.CopySaved{
			MigrationID: m.ID, VolumeID: m.VolumeID, VolumeName: m.VolumeName, Src: m.Src, Dst: m.Dst,
			CopyOptions: p.Request.CopyOptions, Overwrite: p.Request.Overwrite,
		},
	}
}

func dropRequest(p *workflow.Pause) hostop.Request {
	m := p.Migration
	verb, end := "drop", m.Dst
	if p.DropEnd == api.DropSrc {
		verb, end = "delete", m.Src
	}
	return hostop.Request{
		HostID: p.CopyHost.ID, HostName: p.CopyHost.Name, Key: hostop.Key(m.ID, verb, p.Attempt), Path: routes.DropSaved.PathOf(m.ID),
		Body: api.DropSaved{MigrationID: m.ID, VolumeID: m.VolumeID, Drop: p.DropEnd, Location: end},
	}
}

func checkRequest(p *workflow.Pause, g workflow.PauseInstance) hostop.Request {
	m := p.Migration
	return hostop.Request{
		HostID: g.Host.ID, HostName: g.Host.Name, Key: hostop.Key(m.ID, "check", g.SaveAttempt, g.ID), Path: routes.CheckSave.PathOf(g.ID),
		Body: api.InstanceSuspend{MigrationID: m.ID, VolumeID: m.VolumeID},
	}
}

func suspendRequest(p *workflow.Pause, g workflow.PauseInstance) hostop.Request {
	m := p.Migration
	return hostop.Request{
		HostID: g.Host.ID, HostName: g.Host.Name, Key: hostop.Key(m.ID, "suspend", g.SaveAttempt, g.ID), Path: routes.SuspendInstance.PathOf(g.ID),
		Body: api.InstanceSuspend{MigrationID: m.ID, VolumeID: m.VolumeID},
	}
}

func saveRequest(p *workflow.Pause, g workflow.PauseInstance) hostop.Request {
	m := p.Migration
	return hostop.Request{
		HostID: g.Host.ID, HostName: g.Host.Name, Key: hostop.Key(m.ID, "save", g.SaveAttempt, g.ID), Path: routes.SaveInstance.PathOf(g.ID),
		Body: api.InstanceSave{MigrationID: m.ID, VolumeID: m.VolumeID},
	}
}

func checkCopyRequest(p *workflow.Pause) hostop.Request {
	r := copyRequest(p)
	r.Key, r.Path = hostop.Key(p.Migration.ID, "check-copy", p.Attempt), routes.CheckCopy.PathOf(p.Migration.ID)
	return r
}

// placeOf returns the present location of the volume, src or dst, and the verb for restoring
// guests there.
func placeOf(p *workflow.Pause) (verb string, at api.Location) {
	if p.Phase == workflow.PauseRestoring || p.Migration.State == api.MigrationCompleted {
		return "restore", p.Migration.Dst
	}
	return "back", p.Migration.Src
}

func restoreRequest(p *workflow.Pause, g workflow.PauseInstance) hostop.Request {
	m := p.Migration
	verb, at := placeOf(p)
	if g.Discard {
		verb = "discard"
	}
	return hostop.Request{
		HostID: g.Host.ID, HostName: g.Host.Name, Key: hostop.Key(m.ID, verb, g.Attempt, g.ID), Path: routes.RestoreInstance.PathOf(g.ID),
		Body: api.InstanceRestore{MigrationID: m.ID, VolumeID: m.VolumeID, Location: at, DiscardMemory: g.Discard},
	}
}

func resumeRequest(p *workflow.Pause, g workflow.PauseInstance) hostop.Request {
	m := p.Migration
	_, at := placeOf(p)
	return hostop.Request{
		HostID: g.Host.ID, HostName: g.Host.Name, Key: hostop.Key(m.ID, "resume", g.Attempt, g.ID), Path: routes.ResumeInstance.PathOf(g.ID),
		Body: api.InstanceResume{MigrationID: m.ID, VolumeID: m.VolumeID, Location: at},
	}
}
