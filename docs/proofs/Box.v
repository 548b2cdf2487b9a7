(** The box bounds F(A, C) and G(A, C, sigma) (3.6).

    [A] is the mean of u = e^c under the served weights, [C] a bound on the radii, [sigma] the standard deviation of u.
    With X the odds of a set of tokens, its value is at most [gain X (W X)]; G is the supremum over X in (0, 1], F the
    same without the second moment. *)

From Coq Require Import Reals List Lra Lia Psatz.
From Coquelicot Require Import Coquelicot.
From Assay Require Import Sums Softmax.
Import ListNotations.
Open Scope R_scope.

(** * Definitions *)

Definition gain (X w : R) : R := 1 / (1 + X) - 1 / (1 + w).
(** The terms of h: radius C on the set; radius 0 off it; second moment; the free maximum. *)
Definition h1 (E X : R) : R := X * E.
Definition h2 (A X : R) : R := A * (1 + X) - 1.
Definition h3 (A s X : R) : R := X * A + s * sqrt X.
Definition h4 (A X : R) : R := A * (1 + X) / 2.
Definition hF (A E X : R) : R := Rmin (Rmin (h1 E X) (h2 A X)) (h4 A X).
Definition hG (A E s X : R) : R := Rmin (Rmin (h1 E X) (Rmin (h2 A X) (h3 A s X))) (h4 A X).
Definition Wof (A h X : R) : R := h * (A * (1 + X) - h).
Definition WF (A E X : R) : R := Wof A (hF A E X) X.
Definition WG (A E s X : R) : R := Wof A (hG A E s X) X.

Definition F (A C : R) : R := Sup (fun v => exists X, 0 < X <= 1 /\ v = gain X (WF A (exp C) X)).
Definition G (A C sigma : R) : R := Sup (fun v => exists X, 0 < X <= 1 /\ v = gain X (WG A (exp C) sigma X)).

(** The standard deviation of u under the served weights. *)
Definition sigma {I} (l : list I) (ph c : I -> R) : R :=
  sqrt (Sum l (fun t => ph t * (exp (c t))^2) - (Aplus l ph c)^2).

(** * The real functions *)

Lemma gain_mono_W X w w' : 0 <= w -> w <= w' -> gain X w <= gain X w'.
Proof.
  intros H0 H. unfold gain. apply Rplus_le_compat_l, Ropp_le_contravar. unfold Rdiv.
  rewrite !Rmult_1_l. apply Rinv_le_contravar; lra.
Qed.

Lemma gain_anti_X X X' w : 0 <= X -> X <= X' -> gain X' w <= gain X w.
Proof.
  intros H0 H. unfold gain. apply Rplus_le_compat_r. unfold Rdiv. rewrite !Rmult_1_l. apply Rinv_le_contravar; lra.
Qed.

(** gain >= t in polynomial form. *)
Lemma gain_ge X w t : 0 <= X -> 0 <= w -> (t <= gain X w <-> 1 + X <= (1 + w) * (1 - t * (1 + X))).
Proof.
  intros HX Hw. assert (K : gain X w = (1 + w - (1 + X)) / ((1 + X) * (1 + w))) by (unfold gain; field; lra).
  assert (P : 0 < (1 + X) * (1 + w)) by (apply Rmult_lt_0_compat; lra).
  assert (Q : gain X w * ((1 + X) * (1 + w)) = 1 + w - (1 + X)) by (rewrite K; field; lra).
  split; intros H.
  - assert (t * ((1 + X) * (1 + w)) <= gain X w * ((1 + X) * (1 + w))) by (apply Rmult_le_compat_r; lra). nra.
  - apply Rmult_le_reg_r with ((1 + X) * (1 + w)); [assumption|]. nra.
Qed.

Lemma gain_gt X w t : 0 <= X -> 0 <= w -> (t < gain X w <-> 1 + X < (1 + w) * (1 - t * (1 + X))).
Proof.
  intros HX Hw. assert (K : gain X w = (1 + w - (1 + X)) / ((1 + X) * (1 + w))) by (unfold gain; field; lra).
  assert (P : 0 < (1 + X) * (1 + w)) by (apply Rmult_lt_0_compat; lra).
  assert (Q : gain X w * ((1 + X) * (1 + w)) = 1 + w - (1 + X)) by (rewrite K; field; lra).
  split; intros H.
  - assert (t * ((1 + X) * (1 + w)) < gain X w * ((1 + X) * (1 + w))) by (apply Rmult_lt_compat_r; lra). nra.
  - apply Rmult_lt_reg_r with ((1 + X) * (1 + w)); [assumption|]. nra.
Qed.

Lemma gain_le_1 X w : 0 <= X -> 0 <= w -> gain X w <= 1.
Proof.
  intros HX Hw. unfold gain. assert (0 < 1 / (1 + w)) by (apply Rdiv_lt_0_compat; lra).
  assert (1 / (1 + X) <= 1) by (apply Rmult_le_reg_r with (1 + X); [lra|]; field_simplify; lra). lra.
Qed.

Lemma Wof_mono_h A h h' X : h <= h' -> h' <= h4 A X -> Wof A h X <= Wof A h' X.
Proof. unfold Wof, h4. intros. nra. Qed.

Lemma Wof_mono_A A A' h X : 0 <= h -> 0 <= X -> A <= A' -> Wof A h X <= Wof A' h X.
Proof. unfold Wof. intros. assert (A * (1 + X) <= A' * (1 + X)) by nra. nra. Qed.

Lemma Wof_mono_X A h X X' : 0 <= A -> 0 <= h -> X <= X' -> Wof A h X <= Wof A h X'.
Proof. unfold Wof. intros. assert (A * (1 + X) <= A * (1 + X')) by nra. nra. Qed.

Lemma Wof_top A h X : Wof A h X <= Wof A (h4 A X) X.
Proof. unfold Wof, h4. pose proof (pow2_ge_0 (h - A * (1 + X) / 2)). nra. Qed.

(** Where the free maximum is active the value falls (3.6 b). *)
Lemma top_falls A X Y : 1 <= A -> 0 <= X -> X <= Y -> Y <= 1 ->
  gain Y (Wof A (h4 A Y) Y) <= gain X (Wof A (h4 A X) X).
Proof.
  intros HA H0 HXY H1. set (y := 1 + X). set (z := 1 + Y).
  assert (Hy : 1 <= y) by (unfold y; lra). assert (Hyz : y <= z) by (unfold y, z; lra).
  assert (Hz : z <= 2) by (unfold z; lra).
  assert (EX : Wof A (h4 A X) X = (A * y / 2)^2) by (unfold Wof, h4, y; field).
  assert (EY : Wof A (h4 A Y) Y = (A * z / 2)^2) by (unfold Wof, h4, z; field).
  rewrite EX, EY. unfold gain. fold y z.
  set (a := A * y / 2). set (b := A * z / 2).
  assert (Ha : 0 < a) by (unfold a; nra). assert (Hb : 0 < b) by (unfold b; nra).
  assert (Hab : a <= b) by (unfold a, b; nra).
  assert (K1 : 1 / (1 + a^2) - 1 / (1 + b^2) = (b - a) * (b + a) / ((1 + a^2) * (1 + b^2))).
  { field. split; nra. }
  assert (K2 : (b - a) * (b + a) / ((1 + a^2) * (1 + b^2)) <= (b - a) * (b + a) / (4 * (a * b))).
  { unfold Rdiv. apply Rmult_le_compat_l; [apply Rmult_le_pos; lra|].
    apply Rinv_le_contravar; [nra|].
    replace (4 * (a * b)) with ((2 * a) * (2 * b)) by ring.
    apply Rmult_le_compat; [lra|lra| |]; [pose proof (pow2_ge_0 (a - 1))|pose proof (pow2_ge_0 (b - 1))]; nra. }
  assert (K3 : (b - a) * (b + a) / (4 * (a * b)) = (z - y) * (y + z) / (4 * (y * z))).
  { unfold a, b. field. repeat split; lra. }
  assert (K4 : (z - y) * (y + z) / (4 * (y * z)) <= (z - y) / (y * z)).
  { apply Rmult_le_reg_r with (4 * (y * z)); [nra|].
    replace ((z - y) * (y + z) / (4 * (y * z)) * (4 * (y * z))) with ((z - y) * (y + z)) by (field; lra).
    replace ((z - y) / (y * z) * (4 * (y * z))) with ((z - y) * 4) by (field; lra).
    apply Rmult_le_compat_l; lra. }
  assert (K5 : (z - y) / (y * z) = 1 / y - 1 / z) by (field; lra).
  lra.
Qed.

(** Comparing slopes from comparing products. *)
Lemma slope_pos D d h : 0 <= h -> D * h < d * h -> D < d /\ 0 < h.
Proof.
  intros H0 H. destruct (Rle_lt_or_eq_dec _ _ H0) as [Hp|<-]; [|lra].
  split; [|assumption]. now apply Rmult_lt_reg_r with h.
Qed.

Lemma slope_neg D d h : h <= 0 -> D * h < d * h -> d < D /\ h < 0.
Proof. intros H0 H. destruct (slope_pos d D (- h)) as [H1 H2]; lra. Qed.

(** The convex function whose graph is a level set of gain lies above its tangents. *)
Lemma level_tangent t X y : 0 <= t -> 0 < 1 - t * (1 + X) -> 0 < 1 - t * (1 + y) ->
  (1 + y) / (1 - t * (1 + y)) + (X - y) / (1 - t * (1 + y))^2 <= (1 + X) / (1 - t * (1 + X)).
Proof.
  intros Ht HX Hy.
  assert (K : (1 + X) / (1 - t * (1 + X)) - ((1 + y) / (1 - t * (1 + y)) + (X - y) / (1 - t * (1 + y))^2)
              = t * (X - y)^2 / ((1 - t * (1 + X)) * (1 - t * (1 + y))^2)) by (field; lra).
  assert (0 <= t * (X - y)^2 / ((1 - t * (1 + X)) * (1 - t * (1 + y))^2)).
  { apply Rmult_le_pos; [apply Rmult_le_pos; [assumption|apply pow2_ge_0]|].
    left. apply Rinv_0_lt_compat. apply Rmult_lt_0_compat; [assumption|]. now apply pow_lt. }
  lra.
Qed.

Section Real.
Variables A E s : R.
Hypotheses (HA : 1 <= A) (HE : A <= E) (Hs : 0 <= s).

Lemma h_nonneg X : 0 <= X -> 0 <= h1 E X /\ 0 <= h2 A X /\ 0 <= h3 A s X /\ 0 <= h4 A X.
Proof.
  intros HX. pose proof (sqrt_pos X). unfold h1, h2, h3, h4. repeat split; try nra.
Qed.

Lemma hG_nonneg X : 0 <= X -> 0 <= hG A E s X.
Proof. intros HX. pose proof (h_nonneg X HX). unfold hG. repeat apply Rmin_glb; tauto. Qed.

Lemma hG_le X : hG A E s X <= h1 E X /\ hG A E s X <= h2 A X /\ hG A E s X <= h3 A s X /\ hG A E s X <= h4 A X.
Proof.
  unfold hG. set (a := h1 E X). set (b := h2 A X). set (c := h3 A s X). set (d := h4 A X).
  pose proof (Rmin_l (Rmin a (Rmin b c)) d). pose proof (Rmin_r (Rmin a (Rmin b c)) d).
  pose proof (Rmin_l a (Rmin b c)). pose proof (Rmin_r a (Rmin b c)).
  pose proof (Rmin_l b c). pose proof (Rmin_r b c). lra.
Qed.

(** Some term is active. *)
Lemma hG_cases X :
  hG A E s X = h4 A X \/
  (hG A E s X < h4 A X /\ (hG A E s X = h1 E X \/ hG A E s X = h2 A X \/ hG A E s X = h3 A s X)).
Proof.
  unfold hG. unfold Rmin.
  repeat match goal with |- context [Rle_dec ?a ?b] => destruct (Rle_dec a b) end; lra.
Qed.

(** Anything below the first three terms gives no more than W. *)
Lemma Wof_le_WG h X : 0 <= X -> h <= h1 E X -> h <= h2 A X -> h <= h3 A s X -> Wof A h X <= WG A E s X.
Proof.
  intros HX H1 H2 H3. unfold WG. destruct (hG_cases X) as [->|[L H]]; [apply Wof_top|].
  apply Wof_mono_h; [|lra]. lra.
Qed.

Lemma WG_nonneg X : 0 <= X -> 0 <= WG A E s X.
Proof.
  intros HX. unfold WG, Wof. pose proof (hG_nonneg X HX). pose proof (hG_le X) as (_ & _ & _ & H4).
  unfold h4 in H4. nra.
Qed.

Lemma WG_le_top X : WG A E s X <= Wof A (h4 A X) X.
Proof. apply Wof_top. Qed.

(** The value is never negative. *)
Lemma WG_ge_X X : 0 <= X <= 1 -> X <= WG A E s X.
Proof.
  intros [H0 H1].
  assert (HX1 : X <= h1 E X) by (unfold h1; nra).
  assert (HX2 : X <= h2 A X) by (unfold h2; nra).
  assert (HX3 : X <= h3 A s X) by (unfold h3; pose proof (sqrt_pos X); nra).
  apply Rle_trans with (Wof A X X); [|now apply Wof_le_WG].
  unfold Wof. assert (1 <= A * (1 + X) - X) by nra. nra.
Qed.

Lemma gainG_nonneg X : 0 <= X <= 1 -> 0 <= gain X (WG A E s X).
Proof.
  intros HX. pose proof (WG_ge_X X HX). apply gain_ge; [lra|lra|]. lra.
Qed.

Lemma G_bounded v : (exists X, 0 < X <= 1 /\ v = gain X (WG A E s X)) -> v <= 1.
Proof. intros (X & HX & ->). apply gain_le_1; [lra|]. apply WG_nonneg. lra. Qed.

(** h does not decrease in X, and so neither does W (3.6 e). *)
Lemma hG_mono_X X Y : 0 <= X -> X <= Y -> hG A E s X <= hG A E s Y.
Proof.
  intros H0 H. assert (sqrt X <= sqrt Y) by (apply sqrt_le_1_alt; lra).
  unfold hG at 2. repeat apply Rmin_glb.
  - apply Rle_trans with (h1 E X); [now apply hG_le|unfold h1; nra].
  - apply Rle_trans with (h2 A X); [now apply hG_le|unfold h2; nra].
  - apply Rle_trans with (h3 A s X); [now apply hG_le|unfold h3; nra].
  - apply Rle_trans with (h4 A X); [now apply hG_le|unfold h4; nra].
Qed.

Lemma WG_mono_X X Y : 0 <= X -> X <= Y -> WG A E s X <= WG A E s Y.
Proof.
  intros H0 H. unfold WG. apply Rle_trans with (Wof A (hG A E s X) Y).
  - apply Wof_mono_X; [lra|now apply hG_nonneg|assumption].
  - apply Wof_mono_h; [now apply hG_mono_X|apply hG_le].
Qed.

(** ** Unimodality (3.6 d) *)

(** One term of h, as a function [k] with slope [d] of its W: below the free maximum on an initial segment whose end,
    if any, is a crossing, and with W under its tangents. *)
Definition term (k d : R -> R) : Prop :=
  (forall x y, 0 <= x -> x <= y -> k y <= h4 A y -> k x <= h4 A x) /\
  (forall x z, 0 <= x -> x <= z -> k x <= h4 A x -> h4 A z < k z -> exists w, x <= w <= z /\ k w = h4 A w) /\
  (forall y x, 0 < y <= 1 -> 0 <= x -> Wof A (k x) x <= Wof A (k y) y + d y * (x - y)).

Definition d1 X := E * (A - 2 * (E - A) * X).
Definition d2 (X : R) := A.
Definition d3 X := A * s / (2 * sqrt X) + A^2 - s^2 - 1.5 * A * s * sqrt X.

Lemma term1 : term (h1 E) d1.
Proof.
  unfold term, h1, h4, Wof, d1. repeat split.
  - intros x y Hx Hxy H. nra.
  - intros x z Hx Hxz H H'. assert (HD : 0 < 2 * E - A) by lra. exists (A / (2 * E - A)). split; [split|].
    + apply Rmult_le_reg_r with (2 * E - A); [assumption|]. field_simplify; lra.
    + apply Rmult_le_reg_r with (2 * E - A); [assumption|]. field_simplify; lra.
    + field. lra.
  - intros y x _ _. assert (0 <= E * (E - A) * (x - y)^2).
    { apply Rmult_le_pos; [apply Rmult_le_pos; lra|apply pow2_ge_0]. }
    nra.
Qed.

Lemma term2 : term (h2 A) d2.
Proof.
  unfold term, h2, h4, Wof, d2. repeat split.
  - intros x y Hx Hxy H. nra.
  - intros x z Hx Hxz H H'. exists (2 / A - 1).
    assert (K : A * (2 / A) = 2) by (field; lra). split; [split|].
    + apply Rmult_le_reg_l with A; [lra|]. lra.
    + apply Rmult_le_reg_l with A; [lra|]. lra.
    + lra.
  - intros y x _ _. nra.
Qed.

Lemma term3 : term (h3 A s) d3.
Proof.
  unfold term, h3, h4, Wof, d3. repeat split.
  - intros x y Hx Hxy H. assert (sqrt x <= sqrt y) by (apply sqrt_le_1_alt; lra). nra.
  - intros x z Hx Hxz H H'.
    set (q := (sqrt (s^2 + A^2) - s) / A).
    assert (Hr : sqrt (s^2 + A^2) * sqrt (s^2 + A^2) = s^2 + A^2) by (apply sqrt_sqrt; nra).
    assert (Hrs : s <= sqrt (s^2 + A^2)).
    { rewrite <- (sqrt_pow2 s) at 1 by assumption. apply sqrt_le_1_alt. nra. }
    assert (HAq : A * q = sqrt (s^2 + A^2) - s) by (unfold q; field; lra).
    assert (Hq : 0 <= q) by (apply Rmult_le_reg_l with A; [lra|]; lra).
    assert (Hqe : A * (q * q) + 2 * s * q = A).
    { apply Rmult_eq_reg_l with A; [|lra].
      replace (A * (A * (q * q) + 2 * s * q)) with ((A * q) * (A * q) + 2 * s * (A * q)) by ring.
      rewrite HAq. nra. }
    pose proof (sqrt_pos x) as Hsx. pose proof (sqrt_pos z) as Hsz.
    pose proof (sqrt_sqrt x Hx) as Hxx. pose proof (sqrt_sqrt z ltac:(lra)) as Hzz.
    exists (q * q). rewrite sqrt_square by assumption. split; [split|].
    + rewrite <- Hxx. assert (sqrt x <= q).
      { destruct (Rle_lt_dec (sqrt x) q) as [|L]; [assumption|]. exfalso.
        assert (q * q <= sqrt x * sqrt x) by nra. rewrite Hxx in *. 
        assert (A * (q * q) <= A * x) by nra.
        assert (s * q <= s * sqrt x) by nra.
        assert (q * q < x) by (rewrite <- Hxx; nra). nra. }
      nra.
    + rewrite <- Hzz. assert (q <= sqrt z).
      { destruct (Rle_lt_dec q (sqrt z)) as [|L]; [assumption|]. exfalso.
        assert (z <= q * q) by (rewrite <- Hzz; nra). assert (A * z <= A * (q * q)) by nra.
        assert (s * sqrt z <= s * q) by nra. nra. }
      nra.
    + nra.
  - intros y x [Hy _] Hx.
    pose proof (sqrt_lt_R0 y Hy) as Hb. pose proof (sqrt_pos x) as Ha.
    pose proof (sqrt_sqrt x Hx) as Hxx. pose proof (sqrt_sqrt y ltac:(lra)) as Hyy.
    set (a := sqrt x) in *. set (b := sqrt y) in *. rewrite <- Hxx, <- Hyy.
    replace ((a * a * A + s * a) * (A * (1 + a * a) - (a * a * A + s * a)))
      with (A^2 * (a * a) + s * A * a - s * A * a^3 - s^2 * (a * a)) by ring.
    replace ((b * b * A + s * b) * (A * (1 + b * b) - (b * b * A + s * b)))
      with (A^2 * (b * b) + s * A * b - s * A * b^3 - s^2 * (b * b)) by ring.
    assert (K1 : s * A * a <= s * A * b + A * s / (2 * b) * (a * a - b * b)).
    { apply Rmult_le_reg_r with (2 * b); [lra|].
      replace ((s * A * b + A * s / (2 * b) * (a * a - b * b)) * (2 * b))
        with (s * A * (2 * b * b) + s * A * (a * a - b * b)) by (field; lra).
      assert (0 <= s * A * (a - b)^2) by (apply Rmult_le_pos; [apply Rmult_le_pos; lra|apply pow2_ge_0]). nra. }
    assert (K2 : 0 <= s * A * ((a - b)^2 * (a + b / 2))).
    { apply Rmult_le_pos; [apply Rmult_le_pos; lra|]. apply Rmult_le_pos; [apply pow2_ge_0|lra]. }
    nra.
Qed.

(** A set of X with gain at least t is convex along one term. *)
Lemma term_level k d t x y z :
  term k d -> 0 <= t -> 0 < x -> x <= y -> y <= z -> z <= 1 ->
  0 <= Wof A (k x) x -> 0 <= Wof A (k y) y -> 0 <= Wof A (k z) z ->
  t <= gain x (Wof A (k x) x) -> t <= gain z (Wof A (k z) z) -> t <= gain y (Wof A (k y) y).
Proof.
  intros (_ & _ & Ht) H0 Hx Hxy Hyz Hz Wx Wy Wz Gx Gz.
  destruct (Rle_lt_dec t (gain y (Wof A (k y) y))) as [|L]; [assumption|exfalso].
  apply (gain_ge x _ t) in Gx; [|lra|assumption]. apply (gain_ge z _ t) in Gz; [|lra|assumption].
  assert (Dx : 0 < 1 - t * (1 + x)) by nra. assert (Dz : 0 < 1 - t * (1 + z)) by nra.
  assert (Dy : 0 < 1 - t * (1 + y)) by nra.
  assert (L' : (1 + Wof A (k y) y) < (1 + y) / (1 - t * (1 + y))).
  { destruct (Rle_lt_dec ((1 + y) / (1 - t * (1 + y))) (1 + Wof A (k y) y)) as [H|H]; [exfalso|assumption].
    assert (t <= gain y (Wof A (k y) y)); [|lra]. apply gain_ge; [lra|assumption|].
    apply Rmult_le_compat_r with (r := 1 - t * (1 + y)) in H; [|lra]. unfold Rdiv in H.
    rewrite Rmult_assoc, Rinv_l in H by lra. lra. }
  assert (Kx : (1 + x) / (1 - t * (1 + x)) <= 1 + Wof A (k x) x).
  { apply Rmult_le_reg_r with (1 - t * (1 + x)); [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  assert (Kz : (1 + z) / (1 - t * (1 + z)) <= 1 + Wof A (k z) z).
  { apply Rmult_le_reg_r with (1 - t * (1 + z)); [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  pose proof (level_tangent t x y H0 Dx Dy) as Tx. pose proof (level_tangent t z y H0 Dz Dy) as Tz.
  pose proof (Ht y x ltac:(lra) ltac:(lra)) as Sx. pose proof (Ht y z ltac:(lra) ltac:(lra)) as Sz.
  set (D := 1 / (1 - t * (1 + y))^2) in *.
  replace ((x - y) / (1 - t * (1 + y))^2) with (D * (x - y)) in Tx by (unfold D; field; lra).
  replace ((z - y) / (1 - t * (1 + y))^2) with (D * (z - y)) in Tz by (unfold D; field; lra).
  assert (D * (x - y) < d y * (x - y)) by lra. assert (D * (z - y) < d y * (z - y)) by lra.
  destruct (slope_neg D (d y) (x - y)) as [S1 _]; [lra|assumption|].
  destruct (slope_pos D (d y) (z - y)) as [S2 _]; [lra|assumption|]. lra.
Qed.

(** From an inactive term at z one may step back to a point where it is active and the gain no smaller. *)
Lemma term_step k d y z :
  term k d -> 0 < y -> y <= z -> z <= 1 -> k y <= h4 A y -> hG A E s z <= k z -> (forall x, 0 <= x -> 0 <= k x) ->
  exists w, y <= w <= z /\ k w <= h4 A w /\ gain z (WG A E s z) <= gain w (Wof A (k w) w).
Proof.
  intros (_ & Hc & _) Hy Hyz Hz Hk Hh Hn. destruct (Rle_lt_dec (k z) (h4 A z)) as [L|L].
  - exists z. split; [lra|]. split; [assumption|]. apply gain_mono_W; [apply WG_nonneg; lra|].
    unfold WG. now apply Wof_mono_h.
  - destruct (Hc y z ltac:(lra) Hyz Hk L) as (w & Hw & Ew). exists w. split; [assumption|]. split; [lra|].
    rewrite Ew. apply Rle_trans with (gain z (Wof A (h4 A z) z)).
    + apply gain_mono_W; [apply WG_nonneg; lra|apply WG_le_top].
    + apply top_falls; lra.
Qed.

(** The active term. *)
Lemma active X : 0 <= X -> hG A E s X < h4 A X ->
  exists k d, term k d /\ (forall x, hG A E s x <= k x) /\ (forall x, 0 <= x -> 0 <= k x) /\ k X = hG A E s X.
Proof.
  intros HX L. destruct (hG_cases X) as [H|[_ [H|[H|H]]]]; [lra| | |].
  - exists (h1 E), d1. split; [apply term1|]. split; [intros x; apply hG_le|]. split; [intros x Hx; now apply h_nonneg|lra].
  - exists (h2 A), d2. split; [apply term2|]. split; [intros x; apply hG_le|]. split; [intros x Hx; now apply h_nonneg|lra].
  - exists (h3 A s), d3. split; [apply term3|]. split; [intros x; apply hG_le|]. split; [intros x Hx; now apply h_nonneg|lra].
Qed.

Lemma Wof_nonneg k x : 0 <= k -> k <= h4 A x -> 0 <= Wof A k x.
Proof. unfold h4, Wof. intros. nra. Qed.

(** The gain has no valley: it rises, then falls. *)
Theorem gainG_unimodal x y z : 0 < x -> x <= y -> y <= z -> z <= 1 ->
  Rmin (gain x (WG A E s x)) (gain z (WG A E s z)) <= gain y (WG A E s y).
Proof.
  intros Hx Hxy Hyz Hz. set (t := Rmin _ _).
  assert (Ht : 0 <= t) by (apply Rmin_glb; apply gainG_nonneg; lra).
  assert (Gx : t <= gain x (WG A E s x)) by apply Rmin_l. assert (Gz : t <= gain z (WG A E s z)) by apply Rmin_r.
  destruct (hG_cases y) as [H|[L _]].
  - apply Rle_trans with (1 := Gz). apply Rle_trans with (gain z (Wof A (h4 A z) z)).
    + apply gain_mono_W; [apply WG_nonneg; lra|apply WG_le_top].
    + unfold WG. rewrite H. apply top_falls; lra.
  - destruct (active y ltac:(lra) L) as (k & d & Hk & Hle & Hn & Ey).
    assert (Hky : k y <= h4 A y) by lra.
    assert (Hkx : k x <= h4 A x) by (destruct Hk as [Hk _]; apply (Hk x y); lra).
    destruct (term_step k d y z Hk ltac:(lra) Hyz Hz Hky (Hle z) Hn) as (w & Hw & Hkw & Gw).
    unfold WG. rewrite <- Ey. apply (term_level k d t x y w); try lra; try assumption.
    + apply Wof_nonneg; [apply Hn; lra|assumption].
    + apply Wof_nonneg; [apply Hn; lra|assumption].
    + apply Wof_nonneg; [apply Hn; lra|assumption].
    + apply Rle_trans with (1 := Gx). apply gain_mono_W; [apply WG_nonneg; lra|]. unfold WG.
      apply Wof_mono_h; [apply Hle|assumption].
Qed.

(** ** The test of the bisection (10.1) *)

(** The slope of W at the active term. *)
Definition slope X : R :=
  if Req_EM_T (hG A E s X) (h1 E X) then d1 X
  else if Req_EM_T (hG A E s X) (h2 A X) then d2 X else d3 X.

Definition up X : Prop := hG A E s X < h4 A X /\ (1 + WG A E s X)^2 < slope X * (1 + X)^2.

Lemma active_slope X : 0 <= X -> hG A E s X < h4 A X ->
  exists k d, term k d /\ (forall x, hG A E s x <= k x) /\ (forall x, 0 <= x -> 0 <= k x) /\ k X = hG A E s X /\ d X = slope X.
Proof.
  intros HX L. unfold slope. destruct (Req_EM_T _ _) as [e|n1]; [|destruct (Req_EM_T _ _) as [e|n2]].
  - exists (h1 E), d1. repeat split; try apply term1; [intros x; apply hG_le|intros x Hx; now apply h_nonneg|lra].
  - exists (h2 A), d2. repeat split; try apply term2; [intros x; apply hG_le|intros x Hx; now apply h_nonneg|lra].
  - exists (h3 A s), d3. repeat split; try apply term3; [intros x; apply hG_le|intros x Hx; now apply h_nonneg|].
    destruct (hG_cases X) as [H|[_ [H|[H|H]]]]; lra.
Qed.

(** The level of [gain X W]: 1 - t (1 + X) = (1 + X)/(1 + W). *)
Lemma level_D X W : 0 <= X -> 0 <= W -> 1 - gain X W * (1 + X) = (1 + X) / (1 + W).
Proof. intros. unfold gain. field. lra. Qed.

(** Along one term: what the tangent says about points of gain above t. *)
Lemma tangent_gap k d X w :
  term k d -> 0 < X <= 1 -> 0 < w <= 1 -> 0 <= Wof A (k X) X -> 0 <= Wof A (k w) w ->
  0 <= gain X (Wof A (k X) X) -> gain X (Wof A (k X) X) < gain w (Wof A (k w) w) ->
  (1 + Wof A (k X) X)^2 / (1 + X)^2 * (w - X) < d X * (w - X).
Proof.
  intros (_ & _ & Ht) HX Hw W0 W1 G0 Gt. set (W := Wof A (k X) X) in *. set (t := gain X W) in *.
  apply (gain_gt w _ t) in Gt; [|lra|assumption].
  assert (Dw : 0 < 1 - t * (1 + w)) by nra.
  assert (DX : 1 - t * (1 + X) = (1 + X) / (1 + W)) by (apply level_D; lra).
  assert (DX0 : 0 < 1 - t * (1 + X)) by (rewrite DX; apply Rdiv_lt_0_compat; lra).
  pose proof (level_tangent t w X G0 Dw DX0) as T. rewrite DX in T.
  replace ((1 + X) / ((1 + X) / (1 + W))) with (1 + W) in T by (field; lra).
  replace ((w - X) / ((1 + X) / (1 + W))^2) with ((1 + W)^2 / (1 + X)^2 * (w - X)) in T by (field; lra).
  assert (K : (1 + w) / (1 - t * (1 + w)) < 1 + Wof A (k w) w).
  { apply Rmult_lt_reg_r with (1 - t * (1 + w)); [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  pose proof (Ht X w HX ltac:(lra)). fold W in H. lra.
Qed.

Lemma up_rises X x : 0 < x -> x <= X -> X <= 1 -> up X -> gain x (WG A E s x) <= gain X (WG A E s X).
Proof.
  intros Hx HxX HX [L U]. destruct (active_slope X ltac:(lra) L) as (k & d & Hk & Hle & Hn & EX & Ed).
  destruct (Rle_lt_dec (gain x (WG A E s x)) (gain X (WG A E s X))) as [|Gt]; [assumption|exfalso].
  assert (Hkx : k x <= h4 A x) by (destruct Hk as [Hk _]; apply (Hk x X); lra).
  unfold WG in Gt at 1. rewrite <- EX in Gt.
  assert (Gx : gain x (WG A E s x) <= gain x (Wof A (k x) x)).
  { apply gain_mono_W; [apply WG_nonneg; lra|]. unfold WG. apply Wof_mono_h; [apply Hle|assumption]. }
  assert (K := tangent_gap k d X x Hk ltac:(lra) ltac:(lra)).
  unfold WG in U. rewrite <- EX, <- Ed in U.
  assert (G0 : 0 <= gain X (Wof A (k X) X)) by (rewrite EX; apply gainG_nonneg; lra).
  specialize (K ltac:(apply Wof_nonneg; [apply Hn; lra|lra]) ltac:(apply Wof_nonneg; [apply Hn; lra|lra]) G0 ltac:(lra)).
  assert (D : (1 + Wof A (k X) X)^2 / (1 + X)^2 < d X).
  { apply Rmult_lt_reg_r with ((1 + X)^2); [apply pow_lt; lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l; [lra|].
    apply pow_nonzero. lra. }
  destruct (slope_neg _ _ (x - X) ltac:(lra) K). lra.
Qed.

Lemma not_up_falls X z : 0 < X -> X <= z -> z <= 1 -> ~ up X -> gain z (WG A E s z) <= gain X (WG A E s X).
Proof.
  intros HX HXz Hz U. destruct (hG_cases X) as [H|[L _]].
  - unfold WG at 2. rewrite H. apply Rle_trans with (gain z (Wof A (h4 A z) z)).
    + apply gain_mono_W; [apply WG_nonneg; lra|apply WG_le_top].
    + apply top_falls; lra.
  - destruct (active_slope X ltac:(lra) L) as (k & d & Hk & Hle & Hn & EX & Ed).
    destruct (Rle_lt_dec (gain z (WG A E s z)) (gain X (WG A E s X))) as [|Gt]; [assumption|exfalso].
    destruct (term_step k d X z Hk HX HXz Hz ltac:(lra) (Hle z) Hn) as (w & Hw & Hkw & Gw).
    unfold WG in Gt at 1. rewrite <- EX in Gt.
    assert (K := tangent_gap k d X w Hk ltac:(lra) ltac:(lra)).
    assert (G0 : 0 <= gain X (Wof A (k X) X)) by (rewrite EX; apply gainG_nonneg; lra).
    specialize (K ltac:(apply Wof_nonneg; [apply Hn; lra|lra]) ltac:(apply Wof_nonneg; [apply Hn; lra|lra]) G0 ltac:(lra)).
    assert (D : d X <= (1 + Wof A (k X) X)^2 / (1 + X)^2).
    { destruct (Rle_lt_dec (d X) ((1 + Wof A (k X) X)^2 / (1 + X)^2)) as [|N]; [assumption|exfalso]. apply U.
      split; [assumption|]. unfold WG. rewrite <- EX, <- Ed.
      apply Rmult_lt_compat_r with (r := (1 + X)^2) in N; [|apply pow_lt; lra]. unfold Rdiv in N.
      rewrite Rmult_assoc, Rinv_l in N; [lra|]. apply pow_nonzero. lra. }
    destruct (slope_pos _ _ (w - X) ltac:(lra) K). lra.
Qed.

(** Any bracket whose ends pass the test gives a bound on the whole supremum. *)
Theorem bracket_bound lo hi X :
  0 <= lo -> lo <= hi -> 0 < hi -> hi <= 1 -> (lo = 0 \/ up lo) -> (hi = 1 \/ ~ up hi) -> 0 < X <= 1 ->
  gain X (WG A E s X) <= gain lo (WG A E s hi).
Proof.
  intros H0 Hlh Hh H1 Hlo Hhi HX.
  destruct (Rle_lt_dec X lo) as [L|L].
  - destruct Hlo as [->|Hlo]; [lra|].
    apply Rle_trans with (gain lo (WG A E s lo)); [apply up_rises; lra || assumption|].
    apply gain_mono_W; [apply WG_nonneg; lra|apply WG_mono_X; lra].
  - destruct (Rle_lt_dec X hi) as [M|M].
    + apply Rle_trans with (gain lo (WG A E s X)); [apply gain_anti_X; lra|].
      apply gain_mono_W; [apply WG_nonneg; lra|apply WG_mono_X; lra].
    + destruct Hhi as [->|Hhi]; [lra|].
      apply Rle_trans with (gain hi (WG A E s hi)); [apply not_up_falls; lra || assumption|].
      apply gain_anti_X; lra.
Qed.

End Real.
