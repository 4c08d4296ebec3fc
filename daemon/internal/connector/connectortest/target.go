// SPDX-License-Identifier: Apache-2.0

package connectortest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/connector"
)

func (f Fake) markOf(name string) string { return filepath.Join(f.Dir, name+".connected") }

func (f Fake) connected() []string {
	names, err := filepath.Glob(f.markOf("*"))
	if err != nil {
		panic(err) // the pattern is constant
	}
	return names
}

// AddVolume adds a volume with an identity to the target.
func (f Fake) AddVolume(name, identity string, sizeBytes int64) error {
	return errors.Join(
		os.WriteFile(f.metaOf(name), fmt.Appendf(nil, `{"Identity": %q}`, identity), 0o600),
		os.WriteFile(f.bytesOf(name), nil, 0o600), os.Truncate(f.bytesOf(name), sizeBytes))
}

func (f Fake) connect(in connector.Request, v connector.Volume, there bool) (connector.Answer, error) {
	if !there && f.Flaw == ConnectsAny {
		v, there = connector.Volume{Name: in.Volume, Path: Directory + "/" + in.Volume, SizeBytes: GranularityBytes, Identity: "made up"}, true
	}
	switch {
	case !there:
		return connector.Answer{}, absent(in.Volume)
	case isThere(f.markOf(in.Volume)) && f.Flaw == ConnectsOnce:
		return connector.Answer{}, connector.Errorf(connector.CodeExists, "%s is connected", in.Volume)
	}
	return connector.Answer{Volume: &v}, os.WriteFile(f.markOf(in.Volume), nil, 0o600)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (f Fake) disconnect(in connector.Request, v connector.Volume, there bool) (connector.Answer, error) {
	connected, open := isThere(f.markOf(in.Volume)), isThere(f.openOf(in.Volume))
	switch {
	case !connected && f.Flaw == DisconnectsOnce:
		return connector.Answer{}, connector.Errorf(connector.CodeFailed, "%s is not connected", in.Volume)
	case !there || !connected:
		return connector.Answer{}, nil
	case v.Identity != in.Identity && f.Flaw != DisconnectsOther:
		return connector.Answer{}, connector.Errorf(connector.CodeChanged, "%s is %s", in.Volume, v.Identity)
	case open && f.Flaw != DisconnectsOpen:
		return connector.Answer{}, connector.Errorf(connector.CodeInUse, "%s is open", in.Volume)
	case f.Flaw == LeavesSession && len(f.connected()) == 1:
		return connector.Answer{}, nil
	}
	ended := []string{f.markOf(in.Volume)}
	if f.Flaw == EndsShared {
		ended = f.connected()
	}
	for _, mark := range ended {
		if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return connector.Answer{}, err
		}
	}
	return connector.Answer{}, nil
}
