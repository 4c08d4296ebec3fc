-- SPDX-License-Identifier: Apache-2.0
-- What the device at a place said of itself when it became the volume's; '' if it is a file, or is not known.
ALTER TABLE locations ADD COLUMN identity TEXT NOT NULL DEFAULT '';
