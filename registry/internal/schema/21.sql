-- SPDX-License-Identifier: Apache-2.0
-- The UUID of the libvirt secret that opens a volume encrypted by QEMU, '' for other volumes.
ALTER TABLE locations ADD COLUMN luks_secret TEXT NOT NULL DEFAULT '' CHECK (luks_secret = '' OR format = 'raw');
