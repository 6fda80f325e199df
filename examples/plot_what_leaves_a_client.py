"""
====================
What leaves a client
====================

A client sends one message with the number of its rows, their mean and their covariance.
Its size depends on the features and not on the rows, and no row can be read off it,
*unless there is hardly more than one*: the mean of one row is that row.
"""

# %%
# The message
# -----------

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skslot import FederatedOTAligner
from skslot.datasets import load_digit_scanners
from skslot.exchange import ClientStatistics, MessageError

data = load_digit_scanners()
rows = data.data[data.client_ids == "flatbed"]
aligner = FederatedOTAligner()
message = aligner.client_update(rows, client="flatbed")
print(message.describe())

# %%
# Bytes are what really leaves, and what the server reads from them is what it knows.

received = ClientStatistics.from_bytes(message.to_bytes())
print(received)

# %%
# Its size
# --------
# The same for twenty rows and for twenty thousand. From a few dozen rows on, the rows
# themselves would be larger:

print(f"{'rows':>6}{'message':>10}{'rows themselves':>18}   (bytes, float32)")
for n_rows in (20, 100, len(rows)):
    size = aligner.client_update(rows[:n_rows], client="flatbed").nbytes()
    print(f"{n_rows:>6}{size:>10,}{rows[:n_rows].astype('float32').nbytes:>18,}")

# %%
# What the mean shows
# -------------------
# Here features are pixels, so that one can look at a mean. That of many rows is a blur
# which no single person drew. That of one row is the row.

shown = [len(rows), 20, 3, 1]
means = []
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # few rows have a poor covariance as well
    for n_rows in shown:
        message = aligner.client_update(rows[:n_rows], client="flatbed")
        means.append(ClientStatistics.from_bytes(message.to_bytes()).mean)
print(f"one row: differs from its mean by {np.abs(means[-1] - rows[0]).max():.1e}")

# %%
# This is why a message about few rows is not written to a file.

try:
    message.check_disclosure()
except MessageError as error:
    print(error)

# %%

figure, axes = plt.subplots(1, 5, figsize=(9, 2.4), layout="constrained")
titles = [f"mean of {n} row{'s' * (n > 1)}" for n in shown] + ["the first row"]
for axis, image, title in zip(axes, [*means, rows[0]], titles, strict=True):
    axis.imshow(image.reshape(8, 8), cmap="Greys", vmin=0, vmax=16)
    axis.set_title(title, fontsize="medium")
    axis.set(xticks=[], yticks=[])
plt.show()

# %%
# The mean of all rows shows no digit, that of twenty hardly one, and that of a single
# row is the last picture over again. A message is a summary, and a summary of few rows
# is those rows. Nothing here is a proof of privacy, which takes added noise.
