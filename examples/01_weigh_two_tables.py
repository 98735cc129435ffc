"""Two tables, one question: which of my rows look like the rows I must predict?"""

import numpy as np

from steelyard import KMM, ULSIF, Target
from steelyard.datasets import gaussian_pair

pair = gaussian_pair(1000, 1000, n_columns=2, shift=0.7, scale=0.8, random_state=0)

for ratio in (ULSIF(random_state=0), KMM(random_state=0)):
    ratio.fit(pair.X, target=Target(pair.X_target))
    mean = np.average(pair.X, axis=0, weights=ratio.weights_)
    print(
        f"{type(ratio).__name__}: source mean {pair.X.mean(axis=0).round(2)} → weighted {mean.round(2)}, "
        f"target {pair.X_target.mean(axis=0).round(2)}; "
        f"the weights are worth {ratio.effective_sample_size_:.0f} of {len(pair.X)} rows"
    )
