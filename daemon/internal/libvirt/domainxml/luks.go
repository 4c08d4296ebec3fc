// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"github.com/beevik/etree"
	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// libvirt's names for an image that QEMU opens with a passphrase from libvirt.
const (
	formatLUKS       = "luks"
	secretPassphrase = "passphrase"
	engineQEMU       = "qemu"
)

// luksSecretOf returns the UUID of the secret that opens a source. It returns "" without
// encryption, or for settings that the UUID alone cannot express.
func luksSecretOf(src *libvirtxml.DomainDiskSource) string {
	x := src.Encryption
	if x == nil || x.Format != formatLUKS || x.Engine != "" && x.Engine != engineQEMU || len(x.Secrets) != 1 || src.Slices != nil {
		return ""
	}
	secret := x.Secrets[0]
	if secret.Type != secretPassphrase || secret.Usage != "" {
		return ""
	}
	id, err := uuid.Parse(secret.UUID)
	if err != nil {
		return ""
	}
	return id.String()
}

// encryptionOf names the engine, though these images have only one: libvirt sets the default in a
// domain's definition, and not in the destination of a copy. From version 11 on, libvirt gives QEMU
// a destination without an engine as a raw image without encryption. QEMU refuses to copy into that
// image, because the container is larger than the disk.
func encryptionOf(img hv.Image) *libvirtxml.DomainDiskEncryption {
	if img.LUKSSecret == "" {
		return nil
	}
	return &libvirtxml.DomainDiskEncryption{
		Format:  formatLUKS,
		Engine:  engineQEMU,
		Secrets: []libvirtxml.DomainDiskSecret{{Type: secretPassphrase, UUID: img.LUKSSecret}},
	}
}

func setLUKS(source *etree.Element, secret string) {
	encryption := source.CreateElement("encryption")
	encryption.CreateAttr("format", formatLUKS)
	el := encryption.CreateElement("secret")
	el.CreateAttr("type", secretPassphrase)
	el.CreateAttr("uuid", secret)
}

func isLUKS(el *etree.Element) bool {
	children := el.ChildElements()
	if el.FullTag() != "encryption" || len(children) != 1 || len(children[0].ChildElements()) > 0 || len(children[0].Attr) != 2 ||
		el.SelectAttrValue("format", "") != formatLUKS || len(el.Attr) > 2 || len(el.Attr) == 2 && el.SelectAttrValue("engine", "") != engineQEMU {
		return false
	}
	secret := children[0]
	_, err := uuid.Parse(secret.SelectAttrValue("uuid", ""))
	return err == nil && secret.FullTag() == "secret" && secret.SelectAttrValue("type", "") == secretPassphrase
}
