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

(** * F and G *)

Lemma Sup_ext (P Q : R -> Prop) : (forall v, P v <-> Q v) -> Sup P = Sup Q.
Proof. intros H. unfold Sup. f_equal. apply Lub_Rbar_eqset. exact H. Qed.

Lemma exp_ge_1 C : 0 <= C -> 1 <= exp C.
Proof. intros H. pose proof (exp_ineq1_le C). lra. Qed.

(** A second moment as large as e^C says nothing: F is G without it. *)
Lemma hF_hG A E s X : 1 <= A -> 0 <= E <= s -> 0 < X <= 1 -> hF A E X = hG A E s X.
Proof.
  intros HA [HE Hs] HX. unfold hF, hG. f_equal.
  assert (H13 : h1 E X <= h3 A s X).
  { unfold h1, h3. pose proof (sqrt_pos X) as S0. pose proof (sqrt_sqrt X ltac:(lra)) as SS.
    assert (sqrt X <= 1) by (rewrite <- sqrt_1; apply sqrt_le_1_alt; lra).
    assert (X <= sqrt X) by nra.
    assert (X * E <= sqrt X * s) by (apply Rmult_le_compat; lra).
    assert (0 <= X * A) by (apply Rmult_le_pos; lra). lra. }
  rewrite Rmin_assoc. symmetry. apply Rmin_left. apply Rle_trans with (2 := H13). apply Rmin_l.
Qed.

Theorem F_is_G_without_sigma A C s : 1 <= A -> exp C <= s -> F A C = G A C s.
Proof.
  intros HA Hs. unfold F, G. apply Sup_ext. intros v. pose proof (exp_pos C).
  split; intros (X & HX & ->); exists X; (split; [assumption|]); unfold WF, WG;
    rewrite (hF_hG A (exp C) s X); try assumption; try reflexivity; lra.
Qed.

Lemma G_ub A C s X : 1 <= A -> A <= exp C -> 0 <= s -> 0 < X <= 1 -> gain X (WG A (exp C) s X) <= G A C s.
Proof.
  intros HA HE Hs HX. apply (Sup_ub _ 1); [|now exists X]. intros v Hv. now apply (G_bounded A (exp C) s).
Qed.

Lemma G_le A C s b : (forall X, 0 < X <= 1 -> gain X (WG A (exp C) s X) <= b) -> G A C s <= b.
Proof.
  intros H. apply (Sup_le _ b (gain 1 (WG A (exp C) s 1))).
  - exists 1. split; [lra|reflexivity].
  - intros w (X & HX & ->). now apply H.
Qed.

Lemma G_nonneg A C s : 1 <= A -> A <= exp C -> 0 <= s -> 0 <= G A C s.
Proof.
  intros HA HE Hs. apply Rle_trans with (gain 1 (WG A (exp C) s 1)); [apply gainG_nonneg; lra|apply G_ub; lra].
Qed.

(** ** Monotonicity (3.6 e) *)

Lemma WG_mono A A' E E' s s' X :
  1 <= A -> A <= A' -> A <= E -> E <= E' -> 0 <= s -> s <= s' -> 0 <= X -> WG A E s X <= WG A' E' s' X.
Proof.
  intros HA HAA HE HEE Hs Hss HX. unfold WG.
  pose proof (hG_nonneg A E s HA HE Hs X HX) as Hn. pose proof (hG_le A E s X) as (L1 & L2 & L3 & L4).
  pose proof (sqrt_pos X) as HsX.
  assert (Hh : hG A E s X <= hG A' E' s' X).
  { unfold hG at 2. repeat apply Rmin_glb.
    - apply Rle_trans with (1 := L1). unfold h1. nra.
    - apply Rle_trans with (1 := L2). unfold h2. nra.
    - apply Rle_trans with (1 := L3). unfold h3. nra.
    - apply Rle_trans with (1 := L4). unfold h4. nra. }
  apply Rle_trans with (Wof A' (hG A E s X) X); [now apply Wof_mono_A|].
  apply Wof_mono_h; [assumption|apply hG_le].
Qed.

(** Inputs may be rounded up.  The larger inputs need not satisfy A' <= e^C' for the pointwise values; the theorem asks
    it because the supremum is only known to be finite then. *)
Theorem G_mono A A' C C' s s' :
  1 <= A -> A <= exp C -> A <= A' -> A' <= exp C' -> C <= C' -> 0 <= s -> s <= s' -> G A C s <= G A' C' s'.
Proof.
  intros HA HE HAA HE' HC Hs Hss. apply G_le. intros X HX.
  assert (HEE : exp C <= exp C') by (destruct HC as [HC| ->]; [left; now apply exp_increasing|lra]).
  apply Rle_trans with (gain X (WG A' (exp C') s' X)); [|apply G_ub; lra].
  apply gain_mono_W; [apply WG_nonneg; lra|apply WG_mono; lra].
Qed.

Theorem F_mono A A' C C' :
  1 <= A -> A <= exp C -> A <= A' -> A' <= exp C' -> C <= C' -> F A C <= F A' C'.
Proof.
  intros HA HE HAA HE' HC.
  assert (HEE : exp C <= exp C') by (destruct HC as [HC| ->]; [left; now apply exp_increasing|lra]).
  rewrite (F_is_G_without_sigma A C (exp C')), (F_is_G_without_sigma A' C' (exp C')); try lra.
  pose proof (exp_pos C'). apply G_mono; lra.
Qed.

Theorem G_le_F A C s : 1 <= A -> A <= exp C -> 0 <= s -> G A C s <= F A C.
Proof.
  intros HA HE Hs. rewrite (F_is_G_without_sigma A C (Rmax s (exp C))); [|assumption|apply Rmax_r].
  apply G_mono; try lra. apply Rmax_l.
Qed.

(** ** F against the closed forms *)

Lemma F_le A C b : 1 <= A -> (forall X, 0 < X <= 1 -> gain X (WG A (exp C) (exp C) X) <= b) -> F A C <= b.
Proof. intros HA H. rewrite (F_is_G_without_sigma A C (exp C)) by lra. now apply G_le. Qed.

(** F <= tanh(C/2). *)
Theorem F_le_tanh A C : 1 <= A -> A <= exp C -> F A C <= tanh (C / 2).
Proof.
  intros HA HE. apply F_le; [assumption|]. intros X HX. rewrite tanh_exp. set (E := exp C) in *.
  assert (HW : WG A E E X <= X * E^2).
  { unfold WG. pose proof (hG_le A E E X) as (L1 & _). pose proof (hG_nonneg A E E HA HE ltac:(lra) X ltac:(lra)) as Hn.
    apply Rle_trans with (Wof E (hG A E E X) X); [apply Wof_mono_A; lra|].
    apply Rle_trans with (Wof E (h1 E X) X); [apply Wof_mono_h; [assumption|]|].
    - unfold h1, h4. nra.
    - unfold Wof, h1. nra. }
  apply Rle_trans with (gain X (X * E^2)).
  { apply gain_mono_W; [apply WG_nonneg; lra|assumption]. }
  assert (HXE : 0 < 1 + X * E^2) by (pose proof (pow2_ge_0 E); nra).
  unfold gain. apply Rmult_le_reg_r with ((1 + X) * (1 + X * E^2) * (E + 1)).
  { repeat apply Rmult_lt_0_compat; lra. }
  replace ((1 / (1 + X) - 1 / (1 + X * E^2)) * ((1 + X) * (1 + X * E^2) * (E + 1)))
    with ((X * E^2 - X) * (E + 1)) by (field; lra).
  replace ((E - 1) / (E + 1) * ((1 + X) * (1 + X * E^2) * (E + 1))) with ((E - 1) * ((1 + X) * (1 + X * E^2)))
    by (field; lra).
  assert (0 <= (E - 1) * (1 - X * E)^2) by (apply Rmult_le_pos; [lra|apply pow2_ge_0]). nra.
Qed.

(** F <= 1 - 1/A (3.6 h). *)
Theorem F_le_one_minus A C : 1 <= A -> A <= 2 -> A <= exp C -> F A C <= 1 - 1 / A.
Proof.
  intros HA HA2 HE. apply F_le; [assumption|]. intros X HX. set (E := exp C) in *.
  assert (W0 : 0 <= WG A E E X) by (apply WG_nonneg; lra).
  destruct (Rle_lt_dec (A * (1 + X)) 2) as [L|L].
  - assert (HW : WG A E E X <= A * (1 + X) - 1).
    { unfold WG. apply Rle_trans with (Wof A (h2 A X) X).
      - apply Wof_mono_h; [apply hG_le|unfold h2, h4; lra].
      - unfold Wof, h2. nra. }
    apply Rle_trans with (gain X (A * (1 + X) - 1)); [apply gain_mono_W; assumption|].
    unfold gain. replace (1 / (1 + X) - 1 / (1 + (A * (1 + X) - 1))) with ((1 - 1 / A) * (1 / (1 + X))) by (field; lra).
    assert (1 / A <= 1) by (apply Rmult_le_reg_r with A; [lra|]; field_simplify; lra).
    assert (1 / (1 + X) <= 1) by (apply Rmult_le_reg_r with (1 + X); [lra|]; field_simplify; lra).
    assert (0 < 1 / (1 + X)) by (apply Rdiv_lt_0_compat; lra). nra.
  - assert (H2A : 2 / A <= 2) by (apply Rmult_le_reg_r with A; [lra|]; field_simplify; lra).
    assert (H2A' : 1 <= 2 / A) by (apply Rmult_le_reg_r with A; [lra|]; field_simplify; lra).
    assert (HAX : A * (2 / A) = 2) by (field; lra).
    assert (HX0 : 2 / A - 1 <= X) by (apply Rmult_le_reg_l with A; lra).
    apply Rle_trans with (gain X (Wof A (h4 A X) X)); [apply gain_mono_W; [assumption|apply WG_le_top]|].
    apply Rle_trans with (1 := top_falls A (2 / A - 1) X HA ltac:(lra) HX0 ltac:(lra)).
    unfold Wof, h4, gain. replace (1 + (2 / A - 1)) with (2 / A) by ring.
    replace (1 / (2 / A) - 1 / (1 + A * (2 / A) / 2 * (A * (2 / A) - A * (2 / A) / 2))) with (A / 2 - 1 / 2) by (field; lra).
    assert (1 / A = (2 / A) / 2) by (field; lra). nra.
Qed.

Theorem F_le_large_A A C : 2 <= A -> A <= exp C -> F A C <= A^2 / (A^2 + 4).
Proof.
  intros HA HE. apply F_le; [lra|]. intros X HX. set (E := exp C) in *.
  apply Rle_trans with (gain X (Wof A (h4 A X) X)); [apply gain_mono_W; [apply WG_nonneg; lra|apply WG_le_top]|].
  apply Rle_trans with (1 := top_falls A 0 X ltac:(lra) ltac:(lra) ltac:(lra) ltac:(lra)).
  unfold Wof, h4, gain. apply Req_le. field. nra.
Qed.

(** F <= the e-form. *)
Theorem F_le_e_form A C : 1 <= A -> A <= exp C -> F A C <= (A^2 - 1) / 2.
Proof.
  intros HA HE. destruct (Rle_lt_dec A 2) as [L|L].
  - apply Rle_trans with (1 := F_le_one_minus A C HA L HE).
    apply Rmult_le_reg_r with (2 * A); [lra|].
    replace ((1 - 1 / A) * (2 * A)) with (2 * (A - 1)) by (field; lra).
    replace ((A^2 - 1) / 2 * (2 * A)) with ((A - 1) * ((A + 1) * A)) by field.
    assert (2 <= (A + 1) * A) by nra. nra.
  - apply Rle_trans with 1; [|nra].
    apply Rle_trans with (1 := F_le_large_A A C ltac:(lra) HE).
    apply Rmult_le_reg_r with (A^2 + 4); [nra|]. field_simplify; nra.
Qed.

Theorem F_le_min A C : 1 <= A -> A <= exp C -> F A C <= Rmin ((A^2 - 1) / 2) (tanh (C / 2)).
Proof. intros HA HE. apply Rmin_glb; [now apply F_le_e_form|now apply F_le_tanh]. Qed.

(** ** From sets of tokens to the box (3.6 a-c) *)

Lemma sqrt_ratio m n : 0 <= m -> 0 < n -> sqrt (m * n) / n = sqrt (m / n).
Proof.
  intros Hm Hn. replace (m / n) with ((m * n) / (n * n)) by (field; lra).
  rewrite sqrt_div_alt by nra. now rewrite sqrt_square by lra.
Qed.

(** A set of mass m and its complement of mass n, with the lighter of both as the argument of gain. *)
Lemma light_side A E s m n be h :
  1 <= A -> A <= E -> 0 <= s -> 0 < m -> 0 < n -> m + n = 1 -> m <= n ->
  be = h * (A - h) -> h <= m * E -> h <= A - n -> h <= m * A + s * sqrt (m * n) ->
  be / (be + n^2) - m <= gain (m / n) (WG A E s (m / n)) \/ be + n^2 <= 0.
Proof.
  intros HA HE Hs Hm Hn H1 Hmn Hbe B1 B2 B3.
  destruct (Rle_lt_dec (be + n^2) 0) as [|P]; [now right|left].
  set (X := m / n).
  assert (HX : 0 < X) by (apply Rdiv_lt_0_compat; lra).
  assert (HX1 : 1 + X = 1 / n) by (unfold X; replace 1 with (m + n) at 2 by lra; field; lra).
  assert (EW : Wof A (h / n) X = be / n^2) by (unfold Wof; rewrite HX1, Hbe; field; lra).
  assert (HW : be / n^2 <= WG A E s X).
  { rewrite <- EW. apply Wof_le_WG; try assumption; try lra.
    - unfold h1, X. apply Rmult_le_reg_r with n; [assumption|]. field_simplify; lra.
    - unfold h2. rewrite HX1. apply Rmult_le_reg_r with n; [assumption|]. field_simplify; lra.
    - unfold h3, X. rewrite <- sqrt_ratio by lra. apply Rmult_le_reg_r with n; [assumption|].
      field_simplify; lra. }
  assert (W0 : 0 <= WG A E s X) by (apply WG_nonneg; lra).
  assert (EV : be / (be + n^2) - m = gain X (be / n^2)).
  { unfold gain. rewrite HX1. replace m with (1 - n) by lra. field. repeat split; nra. }
  rewrite EV. unfold gain. apply Rplus_le_compat_l, Ropp_le_contravar. unfold Rdiv. rewrite !Rmult_1_l.
  assert (0 < 1 + be / n^2).
  { replace (1 + be / n^2) with ((be + n^2) / n^2) by (field; lra). apply Rdiv_lt_0_compat; [assumption|nra]. }
  apply Rinv_le_contravar; [exact H|]. unfold Rdiv in HW. lra.
Qed.

Lemma box_core A E s m U V :
  1 <= A -> A <= E -> 0 <= s -> 0 <= m <= 1 ->
  m <= U <= m * E -> 1 - m <= A - U <= (1 - m) * E -> Rabs (U - m * A) <= s * sqrt (m * (1 - m)) ->
  0 <= V -> (1 - m)^2 <= V * (A - U) -> 0 < U + V ->
  U / (U + V) - m <= 0 \/ exists X, 0 < X <= 1 /\ U / (U + V) - m <= gain X (WG A E s X).
Proof.
  intros HA HE Hs Hm HU HU' HS HV HJ HUV. apply Rabs_le_between in HS.
  pose proof (share_le_1 U V ltac:(lra) HV HUV) as Hle1.
  destruct (Req_dec m 1) as [->|Hm1]; [left; lra|].
  destruct (Req_dec m 0) as [->|Hm0]; [left; replace U with 0 by lra; unfold Rdiv; lra|].
  right. set (n := 1 - m) in *. assert (Hn : 0 < n) by (unfold n; lra). assert (Hm' : 0 < m) by lra.
  set (be := U * (A - U)).
  assert (Hbe : m * n <= be) by (unfold be; apply Rmult_le_compat; lra).
  assert (Hbe0 : 0 < be) by nra.
  assert (Pn : 0 < be + n^2) by nra. assert (Pm : 0 < be + m^2) by nra.
  assert (K : U / (U + V) - m <= be / (be + n^2) - m).
  { apply Rplus_le_compat_r. apply Rmult_le_reg_r with ((U + V) * (be + n^2)); [now apply Rmult_lt_0_compat|].
    replace (U / (U + V) * ((U + V) * (be + n^2))) with (U * (be + n^2)) by (field; lra).
    replace (be / (be + n^2) * ((U + V) * (be + n^2))) with (be * (U + V)) by (field; lra).
    assert (U * n^2 <= U * (V * (A - U))) by (apply Rmult_le_compat_l; lra). unfold be in *. nra. }
  destruct (Rle_lt_dec m n) as [L|L].
  - exists (m / n). split; [split|].
    + now apply Rdiv_lt_0_compat.
    + apply Rmult_le_reg_r with n; [assumption|]. field_simplify; lra.
    + apply Rle_trans with (1 := K).
      destruct (light_side A E s m n be U) as [H|H]; try assumption; try lra; try reflexivity; unfold n; lra.
  - exists (n / m). split; [split|].
    + now apply Rdiv_lt_0_compat.
    + apply Rmult_le_reg_r with m; [assumption|]. field_simplify; lra.
    + apply Rle_trans with (1 := K). apply Rle_trans with (be / (be + m^2) - n).
      * assert (Hmn1 : m = 1 - n) by (unfold n; lra).
        apply Rmult_le_reg_r with ((be + m^2) * (be + n^2)); [now apply Rmult_lt_0_compat|].
        replace ((be / (be + n^2) - m) * ((be + m^2) * (be + n^2))) with ((be - m * (be + n^2)) * (be + m^2)) by (field; lra).
        replace ((be / (be + m^2) - n) * ((be + m^2) * (be + n^2))) with ((be - n * (be + m^2)) * (be + n^2)) by (field; lra).
        replace (be - m * (be + n^2)) with (n * (be - m * n)) by (rewrite Hmn1; ring).
        replace (be - n * (be + m^2)) with (m * (be - m * n)) by (rewrite Hmn1; ring).
        assert (n * (be + m^2) <= m * (be + n^2)).
        { assert (0 <= (m - n) * (be - m * n)) by (apply Rmult_le_pos; lra). nra. }
        assert (0 <= be - m * n) by lra. nra.
      * destruct (light_side A E s n m be (A - U)) as [H|H]; try assumption; try lra.
        -- unfold n; lra.
        -- unfold be. ring.
        -- rewrite (Rmult_comm n m). assert (m * A + n * A = A) by (unfold n; ring). lra.
Qed.

Section Tokens.
Context {I : Type}.
Implicit Types (l : list I) (ph c x a ah : I -> R).

Lemma fU_compl l ph c x : Aplus l ph c - fU l ph c x = fU l ph c (fun t => 1 - x t).
Proof. unfold Aplus, fU. rewrite <- Sum_minus. apply Sum_ext. intros; ring. Qed.

Lemma fP_compl l ph x : weights l ph -> 1 - fP l ph x = fP l ph (fun t => 1 - x t).
Proof.
  intros [_ H]. transitivity (Sum l ph - fP l ph x); [now rewrite H|].
  unfold fP. rewrite <- Sum_minus. apply Sum_ext. intros; ring.
Qed.

Lemma fU_range l ph c x C : weights l ph -> frac l x -> (forall t, In t l -> 0 <= c t <= C) ->
  fP l ph x <= fU l ph c x <= fP l ph x * exp C.
Proof.
  intros [Hw _] Hx Hc. unfold fP, fU. split.
  - apply Sum_le. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht). specialize (Hc t Ht).
    pose proof (exp_ge_1 (c t) ltac:(lra)). assert (0 <= x t * ph t) by nra. nra.
  - rewrite <- Sum_scal_r. apply Sum_le. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht). specialize (Hc t Ht).
    apply Rmult_le_compat_l; [nra|]. destruct Hc as [_ [Hc| ->]]; [left; now apply exp_increasing|lra].
Qed.

Lemma Aplus_le_exp l ph c C : weights l ph -> (forall t, In t l -> c t <= C) -> Aplus l ph c <= exp C.
Proof.
  intros [Hw H1] Hc. replace (exp C) with (Sum l ph * exp C) by (rewrite H1; ring). rewrite <- Sum_scal_r.
  apply Sum_le. intros t Ht. apply Rmult_le_compat_l; [now apply Hw|].
  destruct (Hc t Ht) as [H| ->]; [left; now apply exp_increasing|lra].
Qed.

(** Jensen for the tokens off the set. *)
Lemma jensen_off l ph c x : weights l ph -> frac l x ->
  (1 - fP l ph x)^2 <= fV l ph c x * (Aplus l ph c - fU l ph c x).
Proof.
  intros Hw Hx. rewrite fU_compl, fP_compl by assumption.
  assert (Hn : forall t, In t l -> 0 <= (1 - x t) * ph t).
  { destruct Hw as [Hw _]. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht). nra. }
  pose proof (Sum_CS l (fun t => (1 - x t) * ph t) (fun t => exp (- c t / 2)) (fun t => exp (c t / 2)) Hn) as K.
  cbv beta in K.
  unfold fP, fV, fU.
  rewrite (Sum_ext l (fun t => (1 - x t) * ph t * (exp (- c t / 2) * exp (c t / 2))) (fun t => (1 - x t) * ph t)) in K.
  2: { intros t _. rewrite <- exp_plus. replace (- c t / 2 + c t / 2) with 0 by lra. rewrite exp_0. ring. }
  rewrite (Sum_ext l (fun t => (1 - x t) * ph t * exp (- c t / 2) ^ 2) (fun t => (1 - x t) * ph t * exp (- c t))) in K.
  2: { intros t _. simpl. rewrite Rmult_1_r, <- exp_plus. do 2 f_equal. lra. }
  rewrite (Sum_ext l (fun t => (1 - x t) * ph t * exp (c t / 2) ^ 2) (fun t => (1 - x t) * ph t * exp (c t))) in K.
  2: { intros t _. simpl. rewrite Rmult_1_r, <- exp_plus. do 2 f_equal. lra. }
  exact K.
Qed.

(** The second moment by Cauchy-Schwarz. *)
Lemma second_moment l ph c x : weights l ph -> frac l x ->
  Rabs (fU l ph c x - fP l ph x * Aplus l ph c) <= sigma l ph c * sqrt (fP l ph x * (1 - fP l ph x)).
Proof.
  intros Hw Hx. set (A := Aplus l ph c). set (P := fP l ph x).
  pose proof (fP_bounds l ph x Hw Hx) as HP. fold P in HP.
  destruct Hw as [Hw H1].
  pose proof (Sum_CS l ph (fun t => exp (c t) - A) (fun t => x t - P) Hw) as K.
  cbv beta in K.
  assert (E1 : Sum l (fun t => ph t * ((exp (c t) - A) * (x t - P))) = fU l ph c x - P * A).
  { rewrite (Sum_ext l _ (fun t => x t * ph t * exp (c t) - P * (ph t * exp (c t)) - A * (x t * ph t) + A * P * ph t))
      by (intros; ring).
    rewrite Sum_plus, !Sum_minus, !Sum_scal, H1. fold (fU l ph c x). fold (Aplus l ph c). fold (fP l ph x). fold A P. ring. }
  assert (E2 : Sum l (fun t => ph t * (exp (c t) - A)^2) = Sum l (fun t => ph t * (exp (c t))^2) - A^2).
  { rewrite (Sum_ext l _ (fun t => ph t * exp (c t) ^ 2 - 2 * A * (ph t * exp (c t)) + A^2 * ph t)) by (intros; ring).
    rewrite Sum_plus, Sum_minus, !Sum_scal, H1. fold (Aplus l ph c). fold A. ring. }
  assert (E3 : Sum l (fun t => ph t * (x t - P)^2) <= P * (1 - P)).
  { rewrite (Sum_ext l _ (fun t => ph t * (x t)^2 - 2 * P * (x t * ph t) + P^2 * ph t)) by (intros; ring).
    rewrite Sum_plus, Sum_minus, !Sum_scal, H1. fold (fP l ph x). fold P.
    assert (Sum l (fun t => ph t * (x t)^2) <= P).
    { apply Sum_le. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht).
      assert ((x t)^2 <= x t) by nra. nra. }
    nra. }
  rewrite E1, E2 in K. unfold sigma. fold A. set (S2 := Sum l (fun t => ph t * exp (c t) ^ 2) - A^2) in *.
  assert (HS2 : 0 <= S2).
  { rewrite <- E2. apply Sum_nonneg. intros t Ht. apply Rmult_le_pos; [now apply Hw|apply pow2_ge_0]. }
  rewrite <- sqrt_mult by nra. rewrite <- sqrt_Rsqr_abs. apply sqrt_le_1_alt. unfold Rsqr.
  apply Rle_trans with (S2 * Sum l (fun t => ph t * (x t - P)^2)); [|now apply Rmult_le_compat_l].
  fold P in K. lra.
Qed.

Theorem fval_le_G l ph c C x :
  weights l ph -> frac l x -> (forall t, In t l -> 0 <= c t <= C) ->
  fval l ph c x <= G (Aplus l ph c) C (sigma l ph c).
Proof.
  intros Hw Hx Hc. set (A := Aplus l ph c). set (s := sigma l ph c).
  assert (HA : 1 <= A) by (apply Aplus_ge_1; [assumption|]; intros t Ht; specialize (Hc t Ht); lra).
  assert (HE : A <= exp C) by (apply Aplus_le_exp; [assumption|]; intros t Ht; specialize (Hc t Ht); lra).
  assert (Hs : 0 <= s) by apply sqrt_pos.
  pose proof (fU_range l ph c x C Hw Hx Hc) as R1.
  assert (Hx' : frac l (fun t => 1 - x t)) by (intros t Ht; specialize (Hx t Ht); lra).
  pose proof (fU_range l ph c _ C Hw Hx' Hc) as R2. rewrite <- fU_compl, <- fP_compl in R2 by assumption.
  pose proof (fP_bounds l ph x Hw Hx) as HP. pose proof (second_moment l ph c x Hw Hx) as HS.
  pose proof (jensen_off l ph c x Hw Hx) as HJ.
  unfold fval.
  destruct (box_core A (exp C) s (fP l ph x) (fU l ph c x) (fV l ph c x)) as [H|(X & HX & H)]; try assumption.
  - now apply fV_nonneg.
  - now apply fUV_pos.
  - apply Rle_trans with (1 := H). now apply G_nonneg.
  - apply Rle_trans with (1 := H). now apply G_ub.
Qed.

(** 3.6: the boxes bound the relaxed worst case. *)
Theorem TVstar_le_G l ph c C :
  weights l ph -> (forall t, In t l -> 0 <= c t <= C) -> TVstar l ph c <= G (Aplus l ph c) C (sigma l ph c).
Proof. intros Hw Hc. apply TVstar_le. intros x Hx. now apply fval_le_G. Qed.

Theorem TVstar_le_F l ph c C :
  weights l ph -> (forall t, In t l -> 0 <= c t <= C) -> TVstar l ph c <= F (Aplus l ph c) C.
Proof.
  intros Hw Hc. apply Rle_trans with (1 := TVstar_le_G l ph c C Hw Hc). apply G_le_F.
  - apply Aplus_ge_1; [assumption|]. intros t Ht; specialize (Hc t Ht); lra.
  - apply Aplus_le_exp; [assumption|]. intros t Ht; specialize (Hc t Ht); lra.
  - apply sqrt_pos.
Qed.

(** ** For logits *)

Lemma radius_range l a ah c C : radius l a ah c -> (forall t, In t l -> c t <= C) -> forall t, In t l -> 0 <= c t <= C.
Proof.
  intros Hr HC t Ht. split; [|now apply HC]. apply (radius_nonneg l (fun t => ah t - a t) c Hr t Ht).
Qed.

Theorem TV_le_G l a ah c C :
  l <> [] -> radius l a ah c -> (forall t, In t l -> c t <= C) ->
  TV l (softmax l a) (softmax l ah) <= G (Aplus l (softmax l ah) c) C (sigma l (softmax l ah) c).
Proof.
  intros Hl Hr HC. apply Rle_trans with (1 := TV_le_TVstar l a ah c Hl Hr).
  apply TVstar_le_G; [now apply softmax_weights|now apply (radius_range l a ah)].
Qed.

Theorem TV_le_F l a ah c C :
  l <> [] -> radius l a ah c -> (forall t, In t l -> c t <= C) ->
  TV l (softmax l a) (softmax l ah) <= F (Aplus l (softmax l ah) c) C.
Proof.
  intros Hl Hr HC. apply Rle_trans with (1 := TV_le_TVstar l a ah c Hl Hr).
  apply TVstar_le_F; [now apply softmax_weights|now apply (radius_range l a ah)].
Qed.

Lemma list_bound l c : exists C, forall t, In t l -> c t <= C.
Proof.
  induction l as [|z l [C IH]]; [now exists 0|]. exists (Rmax (c z) C). intros t [<-|Ht]; [apply Rmax_l|].
  apply Rle_trans with C; [now apply IH|apply Rmax_r].
Qed.

(** 1 - 1/A, from A alone, and its continuation above A = 2. *)
Theorem one_minus_inv_A l a ah c :
  l <> [] -> radius l a ah c -> Aplus l (softmax l ah) c <= 2 ->
  TV l (softmax l a) (softmax l ah) <= 1 - 1 / Aplus l (softmax l ah) c.
Proof.
  intros Hl Hr H2. destruct (list_bound l c) as [C HC].
  apply Rle_trans with (1 := TV_le_F l a ah c C Hl Hr HC).
  pose proof (softmax_weights l ah Hl) as Hw.
  apply F_le_one_minus; [|assumption|now apply Aplus_le_exp].
  apply Aplus_ge_1; [assumption|]. now apply (radius_nonneg l (fun t => ah t - a t)).
Qed.

Theorem large_A l a ah c :
  l <> [] -> radius l a ah c -> 2 <= Aplus l (softmax l ah) c ->
  TV l (softmax l a) (softmax l ah) <= (Aplus l (softmax l ah) c)^2 / ((Aplus l (softmax l ah) c)^2 + 4).
Proof.
  intros Hl Hr H2. destruct (list_bound l c) as [C HC].
  apply Rle_trans with (1 := TV_le_F l a ah c C Hl Hr HC).
  apply F_le_large_A; [assumption|]. apply Aplus_le_exp; [now apply softmax_weights|assumption].
Qed.

End Tokens.
