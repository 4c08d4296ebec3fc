// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/volferry/volferry/daemon/internal/connector"
)

func (l lvm) handle(ctx context.Context, in connector.Request) (connector.Answer, error) {
	p, err := placeOf(in.Options)
	if err != nil {
		return connector.Answer{}, err
	}
	r, err := l.report(ctx, p)
	if err != nil {
		return connector.Answer{}, err
	}
	switch in.Verb {
	case connector.VerbInspect:
		if in.Volume == "" {
			return connector.Answer{Pool: r.facts()}, nil
		}
		found, err := r.find(in.Volume)
		return volumeAnswer(p, found, err)
	case connector.VerbCreate:
		return l.create(ctx, p, r, in)
	case connector.VerbExtend:
		return l.extend(ctx, p, r, in)
	case connector.VerbDelete:
		return l.remove(ctx, p, r, in)
	}
	return connector.Answer{}, connector.Errorf(connector.CodeUnsupported, "there is no verb %q here", in.Verb)
}

func volumeAnswer(p place, v *logical, err error) (connector.Answer, error) {
	if err != nil {
		return connector.Answer{}, err
	}
	return connector.Answer{Volume: &connector.Volume{
		Name: v.Name, Path: p.path(v.Name), SizeBytes: v.sizeBytes, Identity: v.identity(), OpID: v.opID(),
	}}, nil
}

// create makes a thin volume together with its tag, so that neither is seen without the other.
func (l lvm) create(ctx context.Context, p place, r *report, in connector.Request) (connector.Answer, error) {
	if err := r.checkSize(in.SizeBytes); err != nil {
		return connector.Answer{}, err
	}
	if !opName.MatchString(in.OpID) {
		return connector.Answer{}, connector.Errorf(connector.CodeInvalid, "op_id %.60q cannot be a tag of LVM", in.OpID)
	}
	if other := r.named(in.Volume); other != nil {
		if other.PoolLV == p.pool && other.opID() == in.OpID && other.sizeBytes == in.SizeBytes {
			return volumeAnswer(p, other, nil)
		}
		return connector.Answer{}, connector.Errorf(connector.CodeExists, "volume group %s has a logical volume %s already", p.group, in.Volume)
	}
	_, err := l.within(ctx, r.group, "lvcreate", "--yes", "--wipesignatures", "n", "--activate", "y", "--setactivationskip", "n",
		"--virtualsize", inBytes(in.SizeBytes), "--thinpool", p.pool, "--addtag", opTag+in.OpID, "--name", in.Volume, p.group)
	if err != nil {
		return connector.Answer{}, refusal(err)
	}
	return l.now(ctx, p, in.Volume)
}

var opName = regexp.MustCompile(`^[A-Za-z0-9_+.-]{1,128}$`)

func (l lvm) extend(ctx context.Context, p place, r *report, in connector.Request) (connector.Answer, error) {
	v, err := r.find(in.Volume)
	if err == nil {
		err = cmp.Or(v.is(in.Identity), r.checkSize(in.SizeBytes))
	}
	switch {
	case err != nil:
		return connector.Answer{}, err
	case v.sizeBytes == in.SizeBytes:
		return volumeAnswer(p, v, nil)
	case v.sizeBytes > in.SizeBytes:
		return connector.Answer{}, connector.Errorf(connector.CodeInvalid, "%s has %d bytes, and is not made smaller", in.Volume, v.sizeBytes)
	}
	if _, err := l.within(ctx, r.group, "lvextend", "--yes", "--size", inBytes(in.SizeBytes), p.group+"/"+in.Volume); err != nil {
		return connector.Answer{}, refusal(err)
	}
	return l.now(ctx, p, in.Volume)
}

// remove deletes only the volume with the requested identity; another volume may have its name by
// now.
func (l lvm) remove(ctx context.Context, p place, r *report, in connector.Request) (connector.Answer, error) {
	v, err := r.find(in.Volume)
	if connector.CodeOf(err) == connector.CodeNotFound {
		return connector.Answer{}, nil
	}
	if err == nil {
		err = v.is(in.Identity)
	}
	switch {
	case err != nil:
		return connector.Answer{}, err
	case v.open:
		return connector.Answer{}, connector.Errorf(connector.CodeInUse, "%s is open: lsof may say by whom", p.path(in.Volume))
	}
	if _, err := l.within(ctx, r.group, "lvremove", "--yes", "--select", "lv_uuid="+v.UUID, p.group); err != nil {
		return connector.Answer{}, refusal(err)
	}
	now, err := l.report(ctx, p)
	if err != nil {
		return connector.Answer{}, err
	}
	if left, err := now.find(in.Volume); err == nil && left.UUID == v.UUID {
		return connector.Answer{}, connector.Errorf(connector.CodeFailed, "lvremove has left %s", p.path(in.Volume))
	}
	return connector.Answer{}, nil
}

func (l lvm) now(ctx context.Context, p place, volume string) (connector.Answer, error) {
	r, err := l.report(ctx, p)
	if err != nil {
		return connector.Answer{}, err
	}
	v, err := r.find(volume)
	return volumeAnswer(p, v, err)
}

func inBytes(n int64) string { return strconv.FormatInt(n, 10) + "b" }

// refusal derives an error's code from a command's message.
func refusal(err error) error {
	text := strings.ToLower(err.Error())
	code := connector.CodeFailed
	switch {
	case strings.Contains(text, "above threshold"), strings.Contains(text, "insufficient"):
		code = connector.CodeNoSpace
	case strings.Contains(text, "in use"):
		code = connector.CodeInUse
	case strings.Contains(text, "already exists"):
		code = connector.CodeExists
	case strings.Contains(text, "reserved name"), strings.Contains(text, "invalid name"), strings.Contains(text, "names including"), strings.Contains(text, "names starting"):
		code = connector.CodeInvalid
	}
	return connector.Errorf(code, "%v", err)
}
