-- SPDX-License-Identifier: Apache-2.0
-- The UUID of the libvirt secret that opens what is at a place, if QEMU encrypts it; '' if not.
ALTER TABLE locations ADD COLUMN luks_secret TEXT NOT NULL DEFAULT '' CHECK (luks_secret = '' OR format = 'raw');
