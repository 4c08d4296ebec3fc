// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// CollectDefinition returns the instance's definition on this host, and a digest that changes with
// it.
func (e *Env) CollectDefinition(ctx context.Context, in *ShelveInput) (out api.InstanceDefinition, digest string, err error) {
	def, err := e.definitions.DomainDefinition(ctx, in.InstanceID)
	if err != nil {
		return out, "", in.Refusal("shelve", err)
	}
	atts, err := e.registry.Attachments(ctx, "", in.InstanceID)
	if err != nil {
		return out, "", request.Registry(err)
	}
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	switch {
	case err != nil:
		return out, "", err
	case dom == nil:
		return out, "", api.Errorf(api.CodeNotFound, "cannot shelve instance %s: it is not defined on this host any more", in.InstanceName)
	case dom.State.Active():
		return out, "", subject.Forbidden("shelve", in.InstanceName, "somebody has started it")
	}
	if err := mayTake(dom, atts, in.Keep); err != nil {
		return out, "", err
	}
	out = api.InstanceDefinition{Domain: def.Domain, Autostart: def.Autostart, Disks: map[string]api.SlotDefinition{}}
	if out.NVRAM, err = packNVRAM(def.NVRAM); err != nil {
		return out, "", err
	}
	for _, a := range atts {
		text, err := e.definitions.DiskDefinition(ctx, in.InstanceID, hv.Config, a.Device)
		if err != nil {
			return out, "", in.Refusal("shelve", err)
		}
		d, err := e.definitions.ParseDisk(text)
		switch {
		case err != nil:
			return out, "", in.Refusal("shelve", err)
		case !in.Keep && d.Uncarried != "":
			return out, "", wouldLose(dom.Name, &d)
		}
		out.Disks[a.Device] = api.SlotDefinition{Disk: text, SerialOfVolume: dom.ConfigDisk(a.Device).Serial == a.VolumeID}
	}
	all, err := json.Marshal(out)
	if err != nil {
		return out, "", fmt.Errorf("encode the definition of instance %s: %w", in.InstanceName, err)
	}
	sum := sha256.Sum256(all)
	return out, hex.EncodeToString(sum[:]), nil
}

func packNVRAM(nvram []byte) ([]byte, error) {
	if nvram == nil {
		return nil, nil
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(nvram); err != nil {
		return nil, fmt.Errorf("pack NVRAM: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack NVRAM: %w", err)
	}
	return out.Bytes(), nil
}

// maxNVRAM bounds the unpacked size, far above the largest firmware.
const maxNVRAM = 64 << 20

// UnpackNVRAM is the reverse of packNVRAM.
func UnpackNVRAM(nvram []byte) ([]byte, error) {
	if len(nvram) == 0 {
		return nil, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(nvram))
	if err != nil {
		return nil, fmt.Errorf("unpack NVRAM: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(r, maxNVRAM))
	if err != nil {
		return nil, fmt.Errorf("unpack NVRAM: %w", err)
	}
	return out, nil
}
