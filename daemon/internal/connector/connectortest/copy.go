// SPDX-License-Identifier: Apache-2.0

package connectortest

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/connector"
)

// lateOf returns the file with the data of a late write to a volume. The file copiedOf exists
// after a copy to the volume.
func (f Fake) lateOf(name string) string   { return filepath.Join(f.Dir, name+".late") }
func (f Fake) copiedOf(name string) string { return filepath.Join(f.Dir, name+".copied") }

func (f Fake) copy(in connector.Request, src, dst connector.Volume, there bool) (connector.Answer, error) {
	size, end := in.Source.SizeBytes, in.OffsetBytes+in.LengthBytes
	changed := dst.Identity != in.Identity || src.Identity != in.Source.Identity
	switch {
	case !there:
		return connector.Answer{}, absent(in.Volume)
	case changed && f.Flaw != CopiesAny:
		return connector.Answer{}, connector.Errorf(connector.CodeChanged, "they are %s and %s", src.Identity, dst.Identity)
	case (src.SizeBytes != size || dst.SizeBytes != size || in.OffsetBytes%GranularityBytes != 0) && f.Flaw != CopiesBeyond:
		return connector.Answer{}, connector.Errorf(connector.CodeInvalid, "they have %d and %d bytes", src.SizeBytes, dst.SizeBytes)
	case f.Flaw == CopiesOnce && isThere(f.copiedOf(in.Volume)):
		return connector.Answer{}, connector.Errorf(connector.CodeFailed, "it is copied")
	}
	if f.Flaw == CopiesMore {
		end = size
	}
	end = min(end, src.SizeBytes)
	var (
		data []byte
		err  error
	)
	if f.Flaw != CopiesNothing {
		data, err = os.ReadFile(f.bytesOf(in.Source.Volume))
		if err == nil {
			err = f.writeTo(in.Volume, data[:end])
		}
	}
	if f.Flaw == CopiesLate && err == nil {
		err = os.WriteFile(f.lateOf(in.Volume), data[:end], 0o600)
	}
	if f.Flaw == CopiesOnce && err == nil {
		err = os.WriteFile(f.copiedOf(in.Volume), nil, 0o600)
	}
	return connector.Answer{CopiedToBytes: in.OffsetBytes + in.LengthBytes}, err
}

func (f Fake) writeTo(name string, data []byte) error {
	file, err := os.OpenFile(f.bytesOf(name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

func (f Fake) writeLate(name string) error {
	data, err := os.ReadFile(f.lateOf(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, f.writeTo(name, data), os.Remove(f.lateOf(name)))
}
