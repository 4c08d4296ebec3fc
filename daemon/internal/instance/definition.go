// SPDX-License-Identifier: Apache-2.0

package instance

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
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// define is what this host knows of the instance, and what tells it from another
// state of it.
func (m *machine) define(ctx context.Context, in *shelveInput) (out api.InstanceDefinition, digest string, err error) {
	def, err := m.HV.DomainDefinition(ctx, in.InstanceID)
	if err != nil {
		return out, "", in.refusal("shelve", err)
	}
	atts, err := m.Registry.Attachments(ctx, "", in.InstanceID)
	if err != nil {
		return out, "", request.Registry(err)
	}
	dom, err := m.domain(ctx, in.InstanceID)
	switch {
	case err != nil:
		return out, "", err
	case dom == nil:
		return out, "", api.Errorf(api.CodeNotFound, "cannot shelve instance %s: it is not defined on this host any more", in.InstanceName)
	case dom.State.Active():
		return out, "", forbidden("shelve", in.InstanceName, "somebody has started it")
	}
	if err := mayTake(dom, atts, in.Keep); err != nil {
		return out, "", err
	}
	out = api.InstanceDefinition{Domain: def.Domain, Autostart: def.Autostart, Disks: map[string]api.SlotDefinition{}}
	if out.NVRAM, err = packed(def.NVRAM); err != nil {
		return out, "", err
	}
	for _, a := range atts {
		text, err := m.HV.DiskDefinition(ctx, in.InstanceID, hv.Config, a.Device)
		if err != nil {
			return out, "", in.refusal("shelve", err)
		}
		d, err := m.HV.ParseDisk(text)
		switch {
		case err != nil:
			return out, "", in.refusal("shelve", err)
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

// packed are the variables of a UEFI guest as the registry keeps them; none stay
// none.
func packed(nvram []byte) ([]byte, error) {
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

// maxNVRAM is far above the largest firmware, and keeps what is packed from
// growing without end.
const maxNVRAM = 64 << 20

func unpacked(nvram []byte) ([]byte, error) {
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
