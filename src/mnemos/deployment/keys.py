"""Making and reading the keys and certificates of a federation.

<home>/ca.pem, ca.key            the authority that signs the server's certificate; ca.key can be put away
<home>/server.pem, server.key    the server's certificate and key
<home>/owners/<name>.pub         the public key of an owner that may join
<home>/hand-out/<name>/          the files to give to an owner: its private key, and ca.pem
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mnemos.errors import ConfigError

CA, CA_KEY, SERVER, SERVER_KEY = "ca.pem", "ca.key", "server.pem", "server.key"
OWNERS, HAND_OUT, OWNER_KEY = "owners", "hand-out", "key"

_AUTHORITY = 3650
"""The number of days for which the authority's certificate is valid."""
_SOON = datetime.timedelta(days=30)
"""Certificates that expire within this time are announced."""
_NAME = re.compile(r"\w[\w.-]{0,63}")
_HOST = re.compile(r"(\*\.)?[a-zA-Z0-9_-]{1,63}(\.[a-zA-Z0-9_-]{1,63})*")


def make_server(home: Path, hosts: Iterable[str], days: int) -> None:
    """Make a certificate authority, and a certificate of the server for its `hosts`, valid for `days`."""
    key = _new_key()
    # It is valid for ten years, so that the server's can be renewed without new files for owners.
    ca = _certificate("Mnemos federation", key, None, key, max(days, _AUTHORITY))
    certificate = _server(hosts, days, ca, key)
    home.mkdir(parents=True, exist_ok=True)
    (home / CA).write_bytes(ca.public_bytes(form.Encoding.PEM))
    _write_key(home / CA_KEY, key)
    _write_server(home, *certificate)


def renew_server(home: Path, hosts: Iterable[str], days: int) -> None:
    """Make a new certificate of the server, signed by the authority whose certificate owners have already."""
    try:
        ca = x509.load_pem_x509_certificate((home / CA).read_bytes())
        key = form.load_pem_private_key((home / CA_KEY).read_bytes(), None)
    except (OSError, ValueError, TypeError):
        raise ConfigError(
            f"{home / CA_KEY} and {home / CA} can't be read, and a new certificate needs both", "host"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{home / CA_KEY}: not a key made by Mnemos", "host")
    _write_server(home, *_server(hosts, days, ca, key))


def _server(
    hosts: Iterable[str], days: int, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = _new_key()
    return _certificate("Mnemos server", key, ca, ca_key, days, tuple(hosts)), key


def _write_server(home: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    (home / SERVER).write_bytes(certificate.public_bytes(form.Encoding.PEM))
    _write_key(home / SERVER_KEY, key)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    content = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    _write_secret(path, content)


def make_owner(home: Path, name: str) -> Path:
    """Make a key pair for an owner; returns the folder to hand out."""
    check_name(name)
    key = _new_key()
    folder = home / HAND_OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    _write_secret(folder / OWNER_KEY, private)
    (folder / CA).write_bytes((home / CA).read_bytes())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    (home / OWNERS).mkdir(exist_ok=True)
    (home / OWNERS / f"{name}.pub").write_bytes(public + b"\n")
    return folder


def public_half(private: Path) -> bytes:
    """The public half of an owner's private key, in Flower's format."""
    try:
        key = form.load_ssh_private_key(private.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            f"{private}: not a private key in OpenSSH's form without a password", "keys"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{private}: not a key on a NIST elliptic curve, which Flower needs", "keys")
    return key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def fingerprint(public: bytes) -> str:
    """A public key's fingerprint, as `ssh-keygen -lf` prints it."""
    try:
        key = form.load_pem_public_key(public)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError
    except (ValueError, UnsupportedAlgorithm):
        return "unreadable"
    line = key.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def expiry(certificate: bytes) -> datetime.datetime:
    """When a certificate ceases to be valid."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def expiring(name: str, certificate: bytes) -> str:
    """A sentence about a certificate that has expired or will within a month; empty for any other.

    `name` says whose it is, or in which file.
    """
    try:
        end = expiry(certificate)
    except ValueError:
        return ""
    left = end - datetime.datetime.now(datetime.UTC)
    if left > _SOON:
        return ""
    when = f"on {end:%Y-%m-%d}"
    if left <= datetime.timedelta():
        return f"{name} has expired {when}"
    days = "1 day" if left.days == 1 else f"{left.days} days"
    return f"{name} will expire {when}, in {days}"


def check_name(name: str) -> None:
    """Raise a ConfigError for an invalid owner's name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"found {name!r}; allowed: letters, digits, '_', '-' and '.'", "owner")


def public_keys(home: Path) -> dict[str, bytes]:
    """The public keys of the owners that may join, by name, in Flower's format."""
    found: dict[str, bytes] = {}
    for file in sorted((home / OWNERS).glob("*.pub")):
        try:
            key = form.load_ssh_public_key(file.read_bytes())
        except (ValueError, UnsupportedAlgorithm):
            raise ConfigError(f"{file}: not a public key in OpenSSH's form") from None
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise ConfigError(f"{file}: not a key on a NIST elliptic curve, which Flower needs")
        known = key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
        if known in found.values():
            raise ConfigError(f"{file}: another owner in the folder has the same key")
        found[file.stem] = known
    return found


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey,
    days: int,
    hosts: tuple[str, ...] = (),
) -> x509.Certificate:
    """Make a certificate that `signer` signs; without an `issuer`, that of an authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now, authority = datetime.datetime.now(datetime.UTC), issuer is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(_usage(authority), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA384())


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f"found {host!r}; allowed: a name such as fl.example.org, or an address", "host"
            ) from None
        return x509.DNSName(host)
