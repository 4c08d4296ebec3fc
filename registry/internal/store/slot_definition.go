// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/validate"
)

// maxSlotDefinition bounds the definition of a disk: one is a few hundred bytes.
const maxSlotDefinition = 64 << 10

func checkSlotDefinition(device string, d api.SlotDefinition) error {
	return checkDocument("definition of the disk "+device, d.Disk, maxSlotDefinition)
}

// checkDocument checks a text in the hypervisor's words, which is kept as it is.
func checkDocument(what, text string, most int) error {
	switch {
	case text == "":
		return validate.Invalid("the %s is missing", what)
	case len(text) > most:
		return validate.Invalid("the %s has %d bytes, and at most %d are kept", what, len(text), most)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return validate.Invalid("the %s is not text in UTF-8", what)
	}
	return nil
}

// encodeSlot and decodeSlot are what is stored of a slot's definition: "" for nil.
func encodeSlot(d *api.SlotDefinition) (string, error) {
	if d == nil {
		return "", nil
	}
	b, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("encode definition of slot: %w", err)
	}
	return string(b), nil
}

func decodeSlot(text string) (*api.SlotDefinition, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nothing is known of it
	}
	d := new(api.SlotDefinition)
	if err := json.Unmarshal([]byte(text), d); err != nil {
		return nil, fmt.Errorf("decode definition of slot: %w", err)
	}
	return d, nil
}

// keepSlot keeps with a slot what is known of it; nil leaves what is kept.
func (tx *Tx) keepSlot(ctx context.Context, instanceID, device string, d *api.SlotDefinition) error {
	if d == nil {
		return nil
	}
	text, err := encodeSlot(d)
	if err != nil {
		return err
	}
	return tx.Exec(ctx, "UPDATE slots SET definition = ? WHERE instance_id = ? AND device = ?", text, instanceID, device)
}
