"""A sum of vectors whose terms nobody sees, without any network.

The protocol of Bonawitz et al. (2017) for a server that follows it. Each client adds to
its vector one mask for each pair with another client, which the other one subtracts,
and one mask of its own. Secrets behind the masks are shared among all clients, so that
the server can take off the own masks of those whose vector arrived, and the pairwise
masks of those whose vector did not, and never both of one client.

Numbers are integers modulo 2**64. Keys are agreed on by X25519, shares travel under
ChaCha20-Poly1305, masks are the key stream of ChaCha20: all from ``cryptography``;
shares are Shamir's, from ``Crypto``. Flower brings both packages along.
"""

import os
from dataclasses import dataclass

import numpy as np

from .._optional import import_optional

# Bytes of a secret that is shared, and of keys made of it.
SEED, KEY = 16, 32
NONCE = 12
# Bytes of two shares after encryption, which adds a tag of 16.
SEALED = NONCE + 2 * SEED + 16
# Public numbers of a client: to seal shares for it, to agree on pairwise masks, and to
# recognise the secret of its own mask.
CHANNEL, PAIR, OWN = range(3)


class UnmaskError(ValueError):
    """The masks cannot be taken off."""


@dataclass
class Member:
    """A client in one sum: its secrets, and what it has learned from the server.

    All of it is bytes, as it is kept from one message to the next.
    """

    channel: bytes
    pair: bytes
    own: bytes
    members: bytes = b""
    held: bytes = b""

    @classmethod
    def new(cls):
        """A client with fresh secrets."""
        return cls(*(os.urandom(SEED) for _ in range(3)))

    @property
    def n_members(self):
        """Number of clients in the sum, this one among them."""
        return len(self._members())

    def public_numbers(self):
        """What the server and all others may know, one row of bytes each."""
        keys = [public_key(self.channel), public_key(self.pair), trace(self.own)]
        return np.stack([as_bytes(key) for key in keys])

    def share(self, members, threshold):
        """Shares of the secrets for each member in turn, sealed.

        ``members`` are the public numbers of all of them, this client among them.
        """
        self.members = members.tobytes()
        self._position(members)
        flat = members.reshape(-1, KEY)
        if len(np.unique(flat, axis=0)) < len(flat):
            raise ValueError("two members have the same key.")
        pairs = zip(
            split(self.pair, threshold, len(members)),
            split(self.own, threshold, len(members)),
            strict=True,
        )
        sealed = [
            seal(self.channel, bytes(member[CHANNEL]), pair + own)
            for member, (pair, own) in zip(members, pairs, strict=True)
        ]
        return np.stack([as_bytes(each) for each in sealed])

    def mask(self, vector, sealed, threshold):
        """The vector under its masks.

        ``sealed`` has what each member sent to this one, zeros if it sent nothing.
        """
        members = self._members()
        here = self._position(members)
        sent = _who_sent(sealed, members, threshold)
        held = np.zeros((len(members), 2 * SEED), dtype=np.uint8)
        masked = vector.astype(np.uint64) + own_mask(self.own, len(vector))
        for there in np.flatnonzero(sent):
            other = members[there]
            shares = unseal(self.channel, bytes(other[CHANNEL]), bytes(sealed[there]))
            held[there] = as_bytes(shares)
            if there != here:
                pairwise = pair_mask(self.pair, bytes(other[PAIR]), len(vector))
                masked = masked + pairwise if here < there else masked - pairwise
        self.held = held.tobytes()
        return masked

    def reveal(self, arrived, threshold):
        """One share for each member: of its own mask if its vector has arrived.

        Otherwise it is of the secret behind its pairwise masks.
        """
        members = self._members()
        held = np.frombuffer(self.held, np.uint8).reshape(-1, 2, SEED)
        sent = held.any(axis=(1, 2))
        if arrived.shape != sent.shape or not arrived[self._position(members)]:
            raise ValueError("the vector of this client is said to be missing.")
        if (arrived & ~sent).any() or arrived.sum() < threshold:
            raise ValueError(f"{arrived.sum()} vectors arrived, {threshold} must.")
        return np.where(arrived[:, None], held[:, 1], held[:, 0])

    def _members(self):
        return np.frombuffer(self.members, np.uint8).reshape(-1, 3, KEY)

    def _position(self, members):
        """Where this client is in the list, which the server might have changed."""
        is_here = (members == self.public_numbers()).all(axis=(1, 2))
        if is_here.sum() != 1:
            raise ValueError("the keys of this client are not in the list of members.")
        return int(is_here.argmax())


def _who_sent(sealed, members, threshold):
    sent = sealed.any(axis=1)
    if len(sealed) != len(members) or sent.sum() < threshold:
        raise ValueError(f"{sent.sum()} members sent shares, {threshold} must.")
    return sent


def unmask(masked, members, sent, revealed, threshold):
    """Sum of the vectors, from their sum under masks.

    ``masked`` has the vectors that arrived and ``revealed`` what members revealed, by
    their positions among ``members``; ``sent`` are the positions of all who had sent
    shares.
    """
    total = sum(masked.values())
    helpers = sorted(revealed)[:threshold]
    if len(helpers) < threshold:
        raise UnmaskError(
            f"{len(helpers)} clients revealed their shares, {threshold} must."
        )
    for position in sorted(sent):
        shares = [(h + 1, bytes(revealed[h][position])) for h in helpers]
        secret = combine(shares)
        arrived = position in masked
        made = trace(secret) if arrived else public_key(secret)
        expected = members[position, OWN if arrived else PAIR]
        if made != bytes(expected):
            raise UnmaskError("shares that clients revealed do not fit together.")
        if arrived:
            total = total - own_mask(secret, len(total))
            continue
        for other in masked:
            pairwise = pair_mask(secret, bytes(members[other, PAIR]), len(total))
            total = total - pairwise if other < position else total + pairwise
    return total


# ------------------------------------------------------------------- primitives


def as_bytes(data):
    """Bytes as an array."""
    return np.frombuffer(data, np.uint8)


def crypto(module):
    """A module of the package that encrypts."""
    return import_optional(f"cryptography.hazmat.primitives.{module}", "flower", NEEDED)


NEEDED = "secure aggregation"


def stretch(secret, purpose):
    """A key from a secret, for one purpose only."""
    hkdf, hashes = crypto("kdf.hkdf"), crypto("hashes")
    return hkdf.HKDF(hashes.SHA256(), KEY, salt=None, info=purpose).derive(secret)


def trace(secret):
    """What a secret is recognised by, from which it cannot be found."""
    return stretch(secret, b"skslot trace")


def private_key(secret):
    """Private key of X25519 that belongs to a secret."""
    x25519 = crypto("asymmetric.x25519")
    return x25519.X25519PrivateKey.from_private_bytes(stretch(secret, b"skslot key"))


def public_key(secret):
    """Bytes of the public key that belongs to a secret."""
    return private_key(secret).public_key().public_bytes_raw()


def agree(secret, other, purpose):
    """Key that only the owner of a secret and the owner of a public key know."""
    x25519 = crypto("asymmetric.x25519")
    theirs = x25519.X25519PublicKey.from_public_bytes(other)
    return stretch(private_key(secret).exchange(theirs), purpose)


def pair_mask(secret, other, length):
    """Mask that two clients have in common."""
    return mask_of(agree(secret, other, b"skslot pairwise mask"), length)


def own_mask(secret, length):
    """Mask that one client has for itself."""
    return mask_of(stretch(secret, b"skslot own mask"), length)


def mask_of(key, length):
    """Numbers that nobody without the key can tell from random ones."""
    ciphers = crypto("ciphers")
    # the nonce may be fixed, as no key makes two streams
    algorithm = ciphers.algorithms.ChaCha20(key, bytes(16))
    stream = ciphers.Cipher(algorithm, mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * length)), dtype="<u8")


def seal(secret, other, plain):
    """Encrypt what only the owner of a public key may read."""
    nonce, way = os.urandom(NONCE), public_key(secret) + other
    return nonce + _box(secret, other).encrypt(nonce, plain, way)


def unseal(secret, other, sealed):
    """Decrypt what the owner of a public key has sealed, or fail."""
    way = other + public_key(secret)  # what was sent the other way is refused
    return _box(secret, other).decrypt(sealed[:NONCE], sealed[NONCE:], way)


def _box(secret, other):
    aead = crypto("ciphers.aead")
    return aead.ChaCha20Poly1305(agree(secret, other, b"skslot shares"))


def split(secret, threshold, n_shares):
    """Shares of a secret, any ``threshold`` of which give it back."""
    shamir = import_optional("Crypto.Protocol.SecretSharing", "flower", NEEDED).Shamir
    return [share for _, share in shamir.split(threshold, n_shares, secret)]


def combine(shares):
    """The secret, from pairs of the number of a share and the share."""
    shamir = import_optional("Crypto.Protocol.SecretSharing", "flower", NEEDED).Shamir
    return shamir.combine(shares)
