# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""A certificate authority of the lab's own, made by openssl, in a directory that goes with the lab."""

import os
import subprocess


class Authority:
    """Signs what servers and hosts prove themselves with."""

    def __init__(self, directory, name="Lab"):
        os.makedirs(directory, exist_ok=True)
        self.directory = directory
        self.file = os.path.join(directory, "ca.crt")
        self._key = os.path.join(directory, "ca.key")
        self._issue(name, self.file, self._key, ["-addext", "basicConstraints=critical,CA:TRUE"])

    def server(self, name, addresses):
        """Certificate and key of a server that is reached at these addresses."""
        alternatives = ",".join([f"DNS:{name}", *(f"IP:{address}" for address in addresses)])
        return self._signed(f"server-{name}", name, ["-addext", f"subjectAltName={alternatives}"])

    def client(self, name, days=90):
        """Certificate and key of a host, of which the broker reads the name."""
        return self._signed(f"client-{name}-{days}", name, ["-addext", "extendedKeyUsage=clientAuth"], days)

    def _signed(self, file, name, options, days=90):
        certificate = os.path.join(self.directory, f"{file}.crt")
        key = os.path.join(self.directory, f"{file}.key")
        if not os.path.exists(certificate):
            self._issue(name, certificate, key, ["-CA", self.file, "-CAkey", self._key, *options], days)
        return certificate, key

    @staticmethod
    def _issue(name, certificate, key, options, days=90):
        # Without the machine's own configuration, which may add what contradicts these.
        subprocess.run(
            ["openssl", "req", "-x509", "-config", "/dev/stdin", "-newkey", "ec",
             "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days), "-subj", f"/CN={name}",
             "-keyout", key, "-out", certificate, *options],
            input="[req]\ndistinguished_name=name\n[name]\n", text=True, capture_output=True, timeout=30, check=True,
        )  # fmt: skip
        os.chmod(key, 0o600)
