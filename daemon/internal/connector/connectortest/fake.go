// SPDX-License-Identifier: Apache-2.0

// Package connectortest is a connector over files of a directory, with optional flaws, for tests
// only.
package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
)

// Run is Handle as a pools.Run, with requests and answers in JSON as for a program.
func (f Fake) Run(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
	if in.Protocol == 0 {
		in.Protocol = connector.Protocol
	}
	in.Pool = pool
	text, err := json.Marshal(in)
	if err != nil {
		return connector.Answer{}, err
	}
	if f.Flaw == AnyProtocol {
		text = []byte(strings.Replace(string(text), `"protocol":999`, `"protocol":1`, 1))
	}
	var out strings.Builder
	if err := connector.Serve(ctx, strings.NewReader(string(text)), &out, f.Handle); err != nil {
		return connector.Answer{}, err
	}
	return connector.ReadAnswer(in, []byte(out.String()))
}

// Handle is a connector.Handler.
func (f Fake) Handle(_ context.Context, in connector.Request) (connector.Answer, error) {
	v, err := f.read(in.Volume)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return connector.Answer{}, err
	}
	if in.Verb != connector.VerbInspect && !slices.Contains(f.verbs(), in.Verb) {
		return connector.Answer{}, connector.Errorf(connector.CodeUnsupported, "there is no verb %s here", in.Verb)
	}
	switch in.Verb {
	case connector.VerbCreate:
		return f.create(in, v, there)
	case connector.VerbExtend:
		return f.extend(in, v, there)
	case connector.VerbCopy:
		src, err := f.read(in.Source.Volume)
		if err != nil {
			return connector.Answer{}, absent(in.Source.Volume)
		}
		return f.copy(in, src, v, there)
	case connector.VerbDelete:
		return f.remove(in, v, there)
	case connector.VerbConnect:
		return f.connect(in, v, there)
	case connector.VerbDisconnect:
		return f.disconnect(in, v, there)
	}
	if err := f.writeLate(in.Volume); err != nil {
		return connector.Answer{}, err
	}
	switch {
	case in.Volume == "":
		p := connector.Pool{Directory: Directory, CapacityBytes: capacityBytes, FreeBytes: capacityBytes, GranularityBytes: GranularityBytes, Verbs: f.verbs()}
		if f.Flaw == NoGranularity {
			p.GranularityBytes = 0
		}
		return connector.Answer{Pool: &p}, nil
	case !there && f.Flaw == SaysNothing:
		return connector.Answer{Volume: &connector.Volume{}}, nil
	case f.Target && len(f.connected()) == 0:
		return connector.Answer{}, connector.Errorf(connector.CodeNotConnected, "the target is not connected")
	case !there:
		return connector.Answer{}, absent(in.Volume)
	}
	return connector.Answer{Volume: &v}, nil
}

func (f Fake) verbs() []string {
	verbs := []string{connector.VerbInspect, connector.VerbCreate, connector.VerbExtend, connector.VerbDelete}
	if f.Target {
		verbs = []string{connector.VerbInspect, connector.VerbConnect, connector.VerbDisconnect}
	}
	if f.Copies {
		verbs = append(verbs, connector.VerbCopy)
	}
	return verbs
}

func (f Fake) read(name string) (connector.Volume, error) {
	v := connector.Volume{Name: name, Path: Directory + "/" + name}
	text, err := os.ReadFile(f.metaOf(name))
	if err != nil {
		return v, err
	}
	st, err := os.Stat(f.bytesOf(name))
	if err != nil {
		return v, err
	}
	var m meta
	if err := json.Unmarshal(text, &m); err != nil {
		return v, err
	}
	v.Identity, v.OpID, v.SizeBytes = m.Identity, m.OpID, st.Size()
	switch f.Flaw {
	case LiesOfSize:
		v.SizeBytes += GranularityBytes
	case LiesOfIdentity:
		v.Identity = "another"
	case LiesOfPath:
		v.Path = "/dev/other/" + name
	case ForgetsOp:
		v.OpID = ""
	default:
	}
	return v, nil
}

func (f Fake) create(in connector.Request, v connector.Volume, there bool) (connector.Answer, error) {
	switch {
	case there && f.Flaw != RefusesAgain && (f.Flaw == TakesOver || v.OpID == in.OpID && v.SizeBytes == in.SizeBytes):
		return connector.Answer{Volume: &v}, nil
	case there:
		return connector.Answer{}, connector.Errorf(connector.CodeExists, "there is a volume %s", in.Volume)
	case in.SizeBytes%GranularityBytes != 0 && f.Flaw != Rounds:
		return connector.Answer{}, connector.Errorf(connector.CodeInvalid, "%d is no multiple of %d", in.SizeBytes, GranularityBytes)
	}
	size := in.SizeBytes
	if f.Flaw == WrongSize {
		size += GranularityBytes
	}
	var content []byte
	if f.Flaw == Dirty {
		content = []byte("another's")
	}
	text, err := json.Marshal(meta{Identity: "FAKE-" + uuid.NewString(), OpID: in.OpID})
	if err == nil {
		err = os.WriteFile(f.bytesOf(in.Volume), content, 0o600)
	}
	if err == nil {
		err = os.Truncate(f.bytesOf(in.Volume), size)
	}
	if err == nil {
		err = os.WriteFile(f.metaOf(in.Volume), text, 0o600)
	}
	if err != nil {
		return connector.Answer{}, err
	}
	v, err = f.read(in.Volume)
	return connector.Answer{Volume: &v}, err
}

func (f Fake) extend(in connector.Request, v connector.Volume, there bool) (connector.Answer, error) {
	switch {
	case !there:
		return connector.Answer{}, absent(in.Volume)
	case v.Identity != in.Identity && f.Flaw != IgnoresIdentity:
		return connector.Answer{}, connector.Errorf(connector.CodeChanged, "%s is %s", in.Volume, v.Identity)
	case v.SizeBytes > in.SizeBytes && f.Flaw != Shrinks:
		return connector.Answer{}, connector.Errorf(connector.CodeInvalid, "%s is larger", in.Volume)
	}
	if f.Flaw == LosesData {
		if err := os.Truncate(f.bytesOf(in.Volume), 0); err != nil {
			return connector.Answer{}, err
		}
	}
	if err := os.Truncate(f.bytesOf(in.Volume), in.SizeBytes); err != nil {
		return connector.Answer{}, err
	}
	v, err := f.read(in.Volume)
	return connector.Answer{Volume: &v}, err
}

func (f Fake) remove(in connector.Request, v connector.Volume, there bool) (connector.Answer, error) {
	_, err := os.Stat(f.openOf(in.Volume))
	switch {
	case !there && f.Flaw == OnlyOnce:
		return connector.Answer{}, absent(in.Volume)
	case !there || f.Flaw == LeavesDevice:
		return connector.Answer{}, nil
	case v.Identity != in.Identity && f.Flaw != IgnoresIdentity:
		return connector.Answer{}, connector.Errorf(connector.CodeChanged, "%s is %s", in.Volume, v.Identity)
	case err == nil && f.Flaw != DeletesOpen:
		return connector.Answer{}, connector.Errorf(connector.CodeInUse, "%s is open", in.Volume)
	}
	return connector.Answer{}, errors.Join(os.Remove(f.metaOf(in.Volume)), os.Remove(f.bytesOf(in.Volume)))
}

// Look returns the kernel's view of a device of the fake.
func (f Fake) Look(path string) (pools.Device, error) {
	name, found := strings.CutPrefix(path, Directory+"/")
	if !found || f.Target && len(f.connected()) == 0 {
		return pools.Device{}, pools.ErrNoDevice
	}
	v, err := Fake{Dir: f.Dir}.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return pools.Device{}, pools.ErrNoDevice
	}
	return pools.Device{SizeBytes: v.SizeBytes, Identity: v.Identity}, err
}

// Device is an open device of the fake.
type Device struct {
	*os.File
	mark string
}

// Close implements io.Closer.
func (d Device) Close() error { return errors.Join(d.File.Close(), os.Remove(d.mark)) }

// Open opens a device of the fake, which is in use until it is closed.
func (f Fake) Open(path string) (io.Closer, error) {
	name := strings.TrimPrefix(path, Directory+"/")
	file, err := os.OpenFile(f.bytesOf(name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(f.openOf(name), nil, 0o600); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return Device{file, f.openOf(name)}, nil
}
