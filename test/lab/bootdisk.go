// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/volferry/volferry/test/lab/workload"
)

// bootloader is systemd-boot, which starts the kernel with its initial file system
// and its command line.
const bootloader = "/usr/lib/systemd/boot/efi/systemd-bootx64.efi"

// firmware is OVMF.
const firmware = "/usr/share/OVMF/OVMF_CODE_4M.fd"

// BootVolumeBytes is the size of a volume of MakeBootVolume at least.
const BootVolumeBytes = 64 << 20

// The layout of a volume of MakeBootVolume.
const (
	sectorBytes = 512
	espFirst    = 2048 // sector of the EFI system partition
	afterESP    = 2048 // sectors that the second partition table may take
)

// MakeBootVolume makes an image file of this size that a guest with UEFI boots
// from: a GPT with an EFI system partition that holds a boot loader, the kernel
// and the guest's program. root is a word that the guest then says it booted
// (Guest.Root), to tell volumes apart. No writer may be put on it.
func MakeBootVolume(ctx context.Context, v Volume, sizeBytes int64, root string) error {
	boot, err := Kernel(ctx)
	if err != nil {
		return fmt.Errorf("make boot volume: %w", err)
	}
	dir, err := os.MkdirTemp("", "vflab-boot-")
	if err != nil {
		return fmt.Errorf("make boot volume: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	raw := filepath.Join(dir, "raw")
	if err := partition(ctx, raw, sizeBytes); err != nil {
		return fmt.Errorf("make boot volume: %w", err)
	}
	files := map[string]string{"loader.conf": "timeout 0\n", "guest.conf": "linux /vmlinuz\ninitrd /initrd\n" +
		"options " + kernelOptions + " " + workload.RootOption + root + "\n"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("make boot volume: %w", err)
		}
	}
	esp := fmt.Sprintf("%s@@%d", raw, espFirst*sectorBytes)
	sectors := sizeBytes/sectorBytes - espFirst - afterESP
	for _, command := range [][]string{
		{"mformat", "-i", esp, "-F", "-T", strconv.FormatInt(sectors, 10), "::"},
		{"mmd", "-i", esp, "::/EFI", "::/EFI/BOOT", "::/loader", "::/loader/entries"},
		{"mcopy", "-i", esp, bootloader, "::/EFI/BOOT/BOOTX64.EFI"},
		{"mcopy", "-i", esp, boot.Kernel, "::/vmlinuz"},
		{"mcopy", "-i", esp, boot.Initrd, "::/initrd"},
		{"mcopy", "-i", esp, filepath.Join(dir, "loader.conf"), "::/loader/loader.conf"},
		{"mcopy", "-i", esp, filepath.Join(dir, "guest.conf"), "::/loader/entries/guest.conf"},
		{"qemu-img", "convert", "-f", "raw", "-O", v.Format, raw, v.Path},
	} {
		if _, err := run(ctx, command[0], command[1:]...); err != nil {
			return fmt.Errorf("make boot volume: %w", err)
		}
	}
	return nil
}

// partition makes a sparse image with a partition table. Each image is another
// disk to the firmware, as those of two installations are.
func partition(ctx context.Context, raw string, sizeBytes int64) error {
	if err := os.WriteFile(raw, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(raw, sizeBytes); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sfdisk", "--quiet", raw)
	cmd.Stdin = strings.NewReader(fmt.Sprintf("label: gpt\nstart=%d, size=%d, type=uefi\n",
		espFirst, sizeBytes/sectorBytes-espFirst-afterESP))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return nil
}

// NVRAMDir is what libvirtd sees as /var/lib/libvirt/qemu/nvram, with the variables
// of guests with UEFI.
func (l *Libvirtd) NVRAMDir() string { return filepath.Join(l.StateDir(), "nvram") }

// StateDir is what libvirtd sees as /var/lib/libvirt/qemu.
func (l *Libvirtd) StateDir() string { return filepath.Join(l.Dir, "lib", "qemu") }
